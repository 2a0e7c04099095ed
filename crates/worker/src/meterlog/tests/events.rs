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
    let left = log.left_events().unwrap();
    let of = |event: &WaitingEvent| (event.id, event.attempt, event.failures, event.payload_bytes);
    assert_eq!(left.iter().map(of).collect::<Vec<_>>(), [(a, 5, 1, 12), (c, 0, 0, 12)]);
    assert_eq!(left[1].request_id, "request-c");
    assert_eq!(left[1].parent.as_deref(), Some("parent-c"));
    assert!(left[1].is_for("key-f") && left[1].is_for("") && !left[1].is_for("key-g"));
    let of_earlier_version = WaitingEvent { function_key: String::new(), ..left[1].clone() };
    assert!(of_earlier_version.is_for("key-g"));
    assert_eq!(log.payload(c).unwrap().unwrap(), Bytes::from("payload of c"));
    assert_eq!(log.payload(b).unwrap(), None);
    log.drop_event(c);
    barrier(&log);
    assert_eq!(log.left_events().unwrap().len(), 1);
    assert!(accept(&log, event("d")) > c);
}

#[test]
fn a_thread_that_ends_unasked_is_reported_and_leaves_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let log = Arc::new(open(folder.path()));
    let failed = log.failed();
    let (go_on, stopped) = mpsc::channel::<()>();
    log.invocation(invocation("first"), move |_| {
        stopped.recv().unwrap();
        panic!("the test wants it");
    });
    let (sender, results) = mpsc::channel();
    for _ in 0..10 {
        let sender = sender.clone();
        log.invocation(invocation("next"), move |result| sender.send(result).unwrap());
    }
    let accepting = std::thread::spawn({
        let log = log.clone();
        move || block_on(log.accept(event("e")))
    });
    go_on.send(()).unwrap();
    let sentence = block_on(failed);
    assert!(sentence.contains("the test wants it"), "{sentence}");
    for _ in 0..10 {
        // Those that were in one transaction with the first are written, and may not be answered.
        assert_eq!(results.recv().unwrap(), Err(LogError::Closed));
    }
    assert!(accepting.join().unwrap().is_err_and(|error| error == LogError::Closed));
    assert_eq!(record(&log, invocation("late")), Err(LogError::Closed));
    assert_eq!(block_on(log.barrier()), Err(LogError::Closed));
    log.close();
    drop(log);
    assert_eq!(names(folder.path())[0], "first");
}

#[test]
fn an_orderly_end_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let log = open(folder.path());
    let failed = log.failed();
    log.instance(instance("i"));
    log.invocation(invocation("x"), |_| {});
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
