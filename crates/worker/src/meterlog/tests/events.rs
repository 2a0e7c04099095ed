//! Accepted events, and the thread that writes.

use super::*;

fn with_event(name: &str, update: EventUpdate) -> Recorded {
    Recorded { event: Some(update), ..invocation(name) }
}

#[test]
fn an_event_changes_with_the_row_of_its_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let [a, b, c] = ["a", "b", "c"].map(|name| accept(&log, event(name)));
    record(&log, with_event("a", EventUpdate::Attempted { id: a, attempt: 4 })).unwrap();
    record(&log, with_event("a", EventUpdate::Failed { id: a, attempt: 5, failures: 1 })).unwrap();
    record(&log, with_event("b", EventUpdate::Done { id: b })).unwrap();
    drop(log);
    let log = open(folder.path());
    barrier(&log);
    let left = log.left_events().unwrap();
    let of = |event: &WaitingEvent| (event.id, event.attempt, event.failures, event.payload.0);
    assert_eq!(left.iter().map(of).collect::<Vec<_>>(), [(a, 5, 1, 12), (c, 0, 0, 12)]);
    assert_eq!(left[1].request_id, "request-c");
    assert_eq!(left[1].parent.as_deref(), Some("parent-c"));
    assert_eq!(left[1].function_key, "key-f");
    assert_eq!(log.payload(c).unwrap().unwrap(), Bytes::from("payload of c"));
    assert_eq!(log.payload(b).unwrap(), None);
    log.drop_events(vec![c]);
    barrier(&log);
    assert_eq!(log.left_events().unwrap().len(), 1);
    assert!(accept(&log, event("d")) > c);
}

#[test]
fn an_orderly_end_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let failed = log.failed();
    log.instance(instance("i"));
    record(&log, invocation("x")).unwrap();
    log.close();
    assert_eq!(record(&log, invocation("late")), Err(LogError::Closed));
    let resolved = block_on(async {
        tokio::select! {
            biased;
            _ = failed => true,
            () = tokio::task::yield_now() => false,
        }
    });
    assert!(!resolved);
    assert_eq!(names(folder.path()), ["x"]);
}
