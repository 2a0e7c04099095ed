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

#[test]
fn a_trigger_passes_a_change_with_the_event_that_it_became() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let kept = |position| KeptTrigger {
        name: "t".to_owned(),
        definition: "{}".to_owned(),
        position,
        feed: Some("f".to_owned()),
        digest: Some(format!("of {position}")),
    };
    block_on(log.trigger(TriggerUpdate::Put(kept(3)))).unwrap();
    let passed = |position| {
        let digest = format!("of {position}");
        Passed { trigger: Arc::from("t"), position, digest }
    };
    block_on(log.accept(event("t:5"), Some(passed(5)))).unwrap();
    // A worker that was killed: its files as they are, without an orderly end.
    let killed = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            std::fs::copy(file.path(), killed.path().join(file.file_name())).unwrap();
        }
    }
    let after = Reader::open(&killed.path().join("meter.sqlite")).unwrap();
    assert_eq!(after.triggers().unwrap(), [kept(5)]);
    assert_eq!(after.events().unwrap()[0].invocation, "t:5");

    // Where the database does not take the event, the trigger has not passed the change either.
    let held = hold(folder.path());
    held.execute_batch("ALTER TABLE events RENAME TO away; COMMIT").unwrap();
    assert!(block_on(log.accept(event("t:6"), Some(passed(6)))).is_err());
    assert_eq!(log.triggers().unwrap(), [kept(5)]);
    held.execute_batch("ALTER TABLE away RENAME TO events").unwrap();
    block_on(log.trigger(TriggerUpdate::Passed(passed(6)))).unwrap();
    assert_eq!(log.triggers().unwrap(), [kept(6)]);
    block_on(log.trigger(TriggerUpdate::Removed("t".to_owned()))).unwrap();
    assert_eq!(log.triggers().unwrap(), []);
}

#[test]
fn the_invocation_of_a_request_is_found_among_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    for name in ["a", "b"] {
        let mut recorded = invocation(name);
        recorded.row.request_id = Some(format!("request-{name}"));
        record(&log, recorded).unwrap();
    }
    barrier(&log);
    assert_eq!(log.invocation_of("request-a", 2).unwrap().as_deref(), Some("a"));
    assert_eq!(log.invocation_of("request-a", 1).unwrap(), None);
    assert_eq!(log.invocation_of("request-c", 9).unwrap(), None);
}
