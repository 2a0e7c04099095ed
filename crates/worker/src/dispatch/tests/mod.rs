//! The dispatcher on a host without processes, in virtual time: whatever starts, answers, dies or
//! is late, in whatever order, each request ends exactly once and nothing is left.

mod events;
mod fakes;
mod platform;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use crate::config::Config;
use platform::{Platform, config, run, was_ok};

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
