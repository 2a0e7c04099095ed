//! Clients that wait for their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use uncia_load::LoadError;

use crate::support::{MS, Run, SECOND, Server, burst, hello};

fn closed(url: &str, clients: u32, more: Value) -> Run {
    let mut run = Run::new(url, Value::Null);
    let mut closed = json!({"clients": clients, "duration_ns": SECOND / 2});
    closed.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let stream = run.config["streams"][0].as_object_mut().unwrap();
    stream.remove("arrivals");
    stream.insert("closed".to_owned(), closed);
    run
}

#[test]
fn clients_wait_for_their_answers_and_rows_say_so() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let server = Server::answering(move |_| {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        now.fetch_sub(1, Ordering::SeqCst);
        hello()
    });
    let rows = closed(&server.url(), 5, json!({})).run();
    rows.all("ok");
    assert_eq!(most.load(Ordering::SeqCst), 5);
    // 5 clients, 20 ms each, half a second: at the most 125.
    assert!((5..=125).contains(&rows.len()), "{}", rows.len());
    assert_eq!(rows.flags("open_loop"), vec![Some(false); rows.len()]);
    assert_eq!(rows.done.scheduled, rows.done.sent);
    assert!(rows.done.offered_rate.is_none());
}

#[test]
fn thinking_and_a_number_of_requests() {
    let server = Server::answering(|_| hello());
    let rows = closed(&server.url(), 2, json!({"think_ns": 10 * MS, "requests": 11})).run();
    rows.all("ok");
    assert_eq!(rows.len(), 11);
    let mut scheduled: Vec<_> = rows.numbers("scheduled").into_iter().flatten().collect();
    scheduled.sort_unstable();
    // Of 2 clients, the sixth request of the quicker one comes after 5 thoughts.
    assert!(*scheduled.last().unwrap() >= 5 * 10 * MS, "{scheduled:?}");
}

#[test]
fn shares_send_the_whole_between_them() {
    let server = Server::answering(|_| hello());
    let mut ids = Vec::new();
    for index in 0..3 {
        let run = closed(&server.url(), 4, json!({"requests": 20}));
        let rows = run.with("share", json!({"index": index, "of": 3})).run();
        rows.all("ok");
        ids.extend(rows.texts("invocation"));
    }
    assert_eq!(ids.len(), 20);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20);
}

#[test]
fn a_stream_is_open_or_closed() {
    let server = Server::answering(|_| hello());
    let both = closed(&server.url(), 1, json!({})).stream("arrivals", burst(1));
    assert!(matches!(both.fail(), LoadError::OneLoop { .. }));
    let nobody = closed(&server.url(), 0, json!({})).fail();
    assert!(nobody.to_string().contains("closed.clients is 0"), "{nobody}");
    let dry = closed(&server.url(), 1, json!({})).with("dry_run", true).fail();
    assert!(matches!(dry, LoadError::NoSchedule), "{dry}");
}
