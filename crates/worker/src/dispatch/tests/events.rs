//! Accepted events: they wait, run once, and are not lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use uncia_policy::{Capacity, Resources, WorkerId};

use super::platform::{Platform, accepted_event, config, run};
use crate::config::Config;
use crate::meterlog::{PayloadSize, WaitingEvent};

#[test]
fn deleting_a_function_ends_its_events() {
    run(async {
        let config = Config { max_instances: 1, ..config() };
        let platform = Platform::new(4, true, config);
        for id in 0..20 {
            platform.accept(0, id).unwrap();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        platform.dispatcher.delete(&platform.functions[0]);
        platform.rest().await;
        let ran = platform.host.invocations.lock().unwrap().len();
        assert!(ran < 20, "{ran} ran");
        let dropped = platform.dispatcher.overview().await.events_dropped;
        assert_eq!(ran + dropped, 20, "each ran or was dropped");
    });
}

#[test]
fn what_an_event_ran_has_its_row_though_its_function_is_deleted() {
    // Whether the log takes the row when the function is deleted, and whether another attempt was to follow.
    for (refusals, fails) in [(1, false), (1, true), (2, false), (2, true)] {
        run(async {
            let platform = Platform::new(12, true, config());
            platform.log.refusals.store(refusals, Ordering::SeqCst);
            platform.host.fails.store(fails, Ordering::SeqCst);
            platform.accept(0, 1).unwrap();
            while platform.log.refusals.load(Ordering::SeqCst) == refusals {
                tokio::time::sleep(Duration::from_micros(10)).await;
            }
            platform.dispatcher.delete(&platform.functions[0]);
            tokio::time::sleep(Duration::from_millis(1)).await;
            let rows = platform.log.state.lock().unwrap().rows.len();
            assert_eq!(rows, usize::from(refusals == 1), "at once, if that can be");
            platform.rest().await;
            let dropped = platform.dispatcher.overview().await.events_dropped;
            assert_eq!(dropped, usize::from(fails), "what was to follow");
            let state = platform.log.state.lock().unwrap();
            let outcomes: Vec<_> = state.rows.iter().map(|row| &*row.outcome).collect();
            assert_eq!(outcomes, [if fails { "function_error" } else { "ok" }]);
        });
    }
}

#[test]
fn events_wait_for_room_and_each_runs_once() {
    run(async {
        let config = Config { max_instances: 2, event_queue: 300, ..config() };
        let platform = Platform::new(2, true, config);
        for id in 0..270 {
            platform.accept(0, id).unwrap();
        }
        assert!(platform.accept(0, 270).is_err(), "one function may not have all places");
        for id in 270..300 {
            platform.accept(1, id).unwrap();
        }
        assert!(platform.accept(1, 300).is_err(), "the queue is full");
        platform.rest().await;
        platform.check_rows();
        let ran = platform.host.invocations.lock().unwrap();
        assert_eq!(ran.len(), 300);
        assert_eq!(ran.iter().collect::<BTreeSet<_>>().len(), 300, "each once");
        assert_eq!(platform.log.state.lock().unwrap().rows.len(), 300, "and no rows of refusals");
    });
}

#[test]
fn events_of_a_function_that_may_not_run_wait_until_it_may() {
    run(async {
        let platform = Platform::new(3, true, config());
        let reserve = |limit| {
            let mut function = (*platform.functions[0]).clone();
            function.configuration.reserved_concurrency = limit;
            platform.dispatcher.configure(&Arc::new(function));
        };
        reserve(Some(0));
        for id in 0..50 {
            platform.accept(0, id).unwrap();
        }
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(platform.log.state.lock().unwrap().rows.len(), 0, "no row, no attempt");
        assert_eq!(platform.log.state.lock().unwrap().events.len(), 50);
        reserve(None);
        platform.rest().await;
        assert_eq!(platform.host.invocations.lock().unwrap().len(), 50);
    });
}

#[test]
fn shutting_down_leaves_events_in_the_log_and_answers_requests() {
    run(async {
        let config = Config { max_instances: 1, ..config() };
        let platform = Platform::new(5, true, config);
        for id in 0..20 {
            platform.accept(0, id).unwrap();
        }
        let request = platform.submission(1, "late".to_owned());
        let dispatcher = platform.dispatcher.clone();
        let answer = tokio::spawn(async move { dispatcher.submit(request).await });
        tokio::task::yield_now().await;
        platform.dispatcher.shut_down(Duration::from_secs(60)).await;
        platform.dispatcher.finish().await;
        answer.await.unwrap().expect("an answer");
        let state = platform.log.state.lock().unwrap();
        let done = state.rows.iter().filter(|row| row.invocation.starts_with("event")).count();
        assert_eq!(state.events.len() + done, 20, "each is done or in the log");
        assert!(!state.events.is_empty());
    });
}

#[test]
fn events_of_an_earlier_function_of_the_name_are_dropped() {
    run(async {
        let platform = Platform::new(8, true, config());
        let mut function = (*platform.functions[0]).clone();
        function.configuration.key = "second".to_owned();
        platform.dispatcher.configure(&Arc::new(function));
        let event = |id, function_key: &str| WaitingEvent {
            id,
            function: "a".to_owned(),
            function_key: function_key.to_owned(),
            request_id: format!("event-{id}"),
            invocation: format!("event-{id}"),
            parent: Some("parent".to_owned()),
            stage: Some("stage".to_owned()),
            attempt: 0,
            failures: 0,
            payload: PayloadSize(2),
            client_context: None,
            accepted: 0,
        };
        for id in 1..=3 {
            let accepted = accepted_event(id, "a");
            platform.log.state.lock().unwrap().events.insert(id, accepted);
        }
        // An earlier version of the platform wrote no keys.
        platform.dispatcher.resume_events(vec![
            event(1, "first"),
            event(2, "second"),
            event(3, ""),
        ]);
        platform.rest().await;
        assert_eq!(platform.dispatcher.overview().await.events_dropped, 1);
        let state = platform.log.state.lock().unwrap();
        let mut ran: Vec<_> = state.rows.iter().map(|row| row.invocation.as_str()).collect();
        ran.sort_unstable();
        assert_eq!(ran, ["event-2", "event-3"]);
        assert!(state.rows.iter().all(|row| row.parent.as_deref() == Some("parent")));
        assert!(state.rows.iter().all(|row| row.stage.as_deref() == Some("stage")));
    });
}

#[test]
fn stops_are_not_held_against_events_that_run() {
    run(async {
        let platform = Platform::new(6, true, config());
        platform.accept(0, 1).unwrap();
        while platform.host.invocations.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_micros(10)).await;
        }
        // As when the time to wait is over and the host closes.
        platform.dispatcher.shut_down(Duration::ZERO).await;
        platform.dispatcher.close();
        platform.host.kill_all();
        platform.dispatcher.finish().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let state = platform.log.state.lock().unwrap();
        assert_eq!(state.events[&1].attempt, 1, "it is the next worker's");
        assert_eq!(state.events[&1].failures, 0);
        assert_eq!((&*state.rows[0].outcome, state.rows[0].billed), ("transport_error", Some(0)));
    });
}

#[test]
fn an_event_that_no_worker_can_hold_waits_for_a_larger_one_for_six_hours() {
    run(async {
        let platform = Platform::with(5, true, config(), None);
        let join = |worker, memory| {
            let resources = Resources { cpu: 64_000_000, memory };
            let capacity = Capacity { resources, max_instances: 10 };
            platform.dispatcher.worker_joined(WorkerId(worker), capacity);
        };
        join(1, 1 << 20);
        platform.accept(0, 0).unwrap();
        tokio::time::sleep(Duration::from_secs(5 * 3600)).await;
        assert!(platform.log.state.lock().unwrap().rows.is_empty());
        platform.accept(0, 1).unwrap();
        tokio::time::sleep(Duration::from_secs(3600 + 120)).await;
        {
            let state = platform.log.state.lock().unwrap();
            let rows: Vec<_> =
                state.rows.iter().map(|it| (&*it.invocation, &*it.outcome)).collect();
            assert_eq!(rows, [("event-0", "transport_error")]);
            assert_eq!(state.events.keys().collect::<Vec<_>>(), [&1], "and the other waits on");
        }
        join(2, 1 << 40);
        platform.rest().await;
        platform.check_rows();
        assert_eq!(platform.host.invocations.lock().unwrap().len(), 1);
    });
}
