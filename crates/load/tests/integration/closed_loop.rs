//! Clients that wait for their answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use uncia_load::LoadError;

use crate::support::{MS, Run, SECOND, Server, at_once, burst, hello};

fn closed(url: &str, clients: u32, more: Value) -> Run {
    let mut run = Run::new(url, Value::Null);
    // A number of requests may take long on a busy machine.
    let seconds = if more.get("requests").is_some() { 120 * SECOND } else { SECOND / 2 };
    let mut closed = json!({"clients": clients, "duration_ns": seconds});
    closed.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let stream = run.config["streams"][0].as_object_mut().unwrap();
    stream.remove("arrivals");
    stream.insert("closed".to_owned(), closed);
    run
}

#[test]
fn clients_wait_for_their_answers_and_rows_say_so() {
    let (server, most) = at_once(5, Duration::from_millis(20), hello);
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

#[test]
fn bursts_back_to_back_wait_for_all_their_answers() {
    let server = Server::answering(|request| {
        // Every other answer is slow.
        let odd = request.header("x-uncia-invocation").is_some_and(|id| id.ends_with(['1', '3']));
        std::thread::sleep(Duration::from_millis(if odd { 20 } else { 1 }));
        hello()
    });
    let more = json!({"together": true, "think_ns": 5 * MS, "requests": 14});
    let rows = closed(&server.url(), 4, more).run();
    rows.all("ok");
    let mut bursts: Vec<_> = rows.numbers("burst").into_iter().flatten().collect();
    bursts.sort_unstable();
    assert_eq!(bursts, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]);
    let received: Vec<_> =
        rows.numbers("burst").into_iter().zip(rows.numbers("received")).collect();
    for (burst, scheduled) in rows.numbers("burst").into_iter().zip(rows.numbers("scheduled")) {
        let before = received.iter().filter(|(other, _)| *other < burst).map(|(_, at)| *at).max();
        let think = before.flatten().map_or(0, |last| scheduled.unwrap() - last);
        assert!(before.is_none() || think >= 5 * MS, "{think}");
    }
}

#[test]
fn thoughts_can_be_random_and_are_the_same_each_time() {
    let server = Server::answering(|_| hello());
    let thoughts = || {
        let more = json!({"think_ns": MS, "think_max_ns": 9 * MS, "requests": 20});
        let rows = closed(&server.url(), 1, more).run();
        let mut times: Vec<_> =
            rows.numbers("scheduled").into_iter().zip(rows.numbers("received")).collect();
        times.sort_unstable();
        let between = times.windows(2).map(|pair| pair[1].0.unwrap() - pair[0].1.unwrap());
        between.collect::<Vec<_>>()
    };
    let found = thoughts();
    assert!(found.iter().all(|think| (MS..=9 * MS).contains(think)), "{found:?}");
    assert_eq!(found, thoughts());
    assert!(found.iter().min() < found.iter().max());
    let wrong = closed(&server.url(), 1, json!({"think_ns": 2, "think_max_ns": 1})).fail();
    assert!(wrong.to_string().contains("think_max_ns is 1: it must be at least"), "{wrong}");
}
