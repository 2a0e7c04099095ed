//! The dispatcher on a host without processes, in virtual time: whatever starts, answers, dies or
//! is late, in whatever order, each request ends exactly once and nothing is left.

mod events;
mod fakes;
mod platform;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::config::Config;
use crate::dispatch::instances::InstanceState;
use platform::{Platform, config, run, was_ok};
use uncia_policy::WorkerId;

#[test]
fn requests_are_answered_and_instances_removed() {
    run(async {
        let platform = Platform::new(1, true, config());
        let submit =
            |n: usize| platform.dispatcher.submit(platform.submission(n % 2, n.to_string()));
        assert!(was_ok(&submit(0).await.unwrap()));
        let again = submit(2).await.unwrap();
        assert!(was_ok(&again));
        assert_eq!(again.row().start.as_deref(), Some("warm"));
        platform.rest().await;
        platform.check_rows();
    });
}

#[test]
fn an_instance_that_cannot_be_paused_yet_is_later() {
    run(async {
        let platform = Platform::new(1, true, config());
        let answer = |n: usize| platform.dispatcher.submit(platform.submission(0, n.to_string()));
        for (refusals, name) in [(0, 0), (2, 1)] {
            platform.host.refusals.store(refusals, std::sync::atomic::Ordering::SeqCst);
            assert!(was_ok(&answer(2 * name).await.unwrap()));
            tokio::time::sleep(Duration::from_millis(40)).await;
            let again = answer(2 * name + 1).await.unwrap();
            assert_eq!(again.row().start.as_deref(), Some("thawed"), "{refusals}");
        }
        platform.rest().await;
        platform.check_rows();
    });
}

#[test]
fn nothing_is_kept_for_a_function_that_is_gone() {
    run(async {
        let platform = Platform::new(3, true, config());
        let [first, late] = [0, 1].map(|n| platform.submission(n, n.to_string()));
        platform.dispatcher.submit(first).await.unwrap();
        // The other's instance is being started when the function is deleted.
        let dispatcher = platform.dispatcher.clone();
        let late = tokio::spawn(async move { dispatcher.submit(late).await });
        tokio::time::sleep(Duration::from_micros(1)).await;
        for function in &platform.functions {
            platform.dispatcher.delete(function);
        }
        drop(late.await);
        platform.rest().await;
        assert!(platform.host.kept.lock().unwrap().is_empty());
    });
}

#[test]
fn a_row_says_what_the_instance_was_allocated() {
    run(async {
        let platform = Platform::new(7, true, config());
        let configure = |memory_mb, reserved_concurrency| {
            let mut function = (*platform.functions[0]).clone();
            function.configuration.reserved_concurrency = reserved_concurrency;
            function.configuration.memory_mb = memory_mb;
            platform.dispatcher.configure(&Arc::new(function));
        };
        configure(128, Some(0));
        platform.accept(0, 1).unwrap();
        configure(1024, None);
        platform.rest().await;
        let state = platform.log.state.lock().unwrap();
        assert_eq!(state.rows[0].allocated_memory, Some(1 << 30));
    });
}

#[test]
fn how_an_instance_started_is_not_known_before_it_has() {
    run(async {
        let platform = Platform::new(11, true, config());
        let (orders, _ordered) = tokio::sync::mpsc::unbounded_channel();
        let function = platform.functions[0].clone();
        let mut state = InstanceState::new("i".into(), function, orders, WorkerId(0));
        assert_eq!(state.row().start, None);
        state.become_ready(&[], true, 0);
        assert_eq!(state.row().start.as_deref(), Some("restored"));
        platform.rest().await;
    });
}

#[test]
fn what_is_released_idles_on_and_costs_hints_no_more() {
    run(async {
        let platform = Platform::new(9, true, config());
        let (orders, _ordered) = tokio::sync::mpsc::unbounded_channel();
        let function = platform.functions[0].clone();
        let mut state = InstanceState::new("i".into(), function, orders, WorkerId(0));
        state.hint_idle = Some(0);
        state.become_ready(&[], false, 0);
        state.hold();
        assert_eq!(state.row().hint_idle, None, "while it lives");
        state.release();
        let held = state.hint_idle.unwrap();
        let row = state.ended_row("keep_alive", None);
        assert_eq!(row.hint_idle, Some(held));
        let idle: i64 = row.idle.unwrap().iter().map(|(start, end)| end - start).sum();
        assert!(0 < held && held < idle, "{held} of {idle}");
        platform.rest().await;
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn each_request_ends_exactly_once_whatever_goes_wrong(
        seed: u64,
        requests in proptest::collection::vec((0_usize..2, 0_u64..4_000, 0_u8..12), 1..120),
        max_instances in 1_u32..8,
    ) {
        run(async {
            let config = Config { max_instances, event_retry_ms: 1, ..config() };
            let platform = Platform::new(seed, false, config);
            let mut answers = Vec::new();
            for (n, (function, pause_us, kind)) in requests.into_iter().enumerate() {
                tokio::time::sleep(Duration::from_micros(pause_us)).await;
                match kind {
                    0..=2 => platform.accept(function, n as i64).unwrap(),
                    3 => {
                        // Other code: its instances retire.
                        let mut updated = (*platform.functions[function]).clone();
                        updated.configuration.environment.insert("N".to_owned(), n.to_string());
                        platform.dispatcher.configure(&Arc::new(updated));
                    }
                    _ => {
                        let submission = platform.submission(function, format!("request-{n}"));
                        let dispatcher = platform.dispatcher.clone();
                        answers.push(tokio::spawn(async move { dispatcher.submit(submission).await }));
                    }
                }
            }
            for answer in answers {
                answer.await.unwrap().expect("an answer to each");
            }
            platform.rest().await;
            platform.check_rows();
        });
    }
}
