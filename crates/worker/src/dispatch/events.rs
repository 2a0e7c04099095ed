//! Accepted events: asynchronous invocations that are in the log until they are done.
//!
//! An event waits for room and is never refused. It is done when an attempt succeeds, or when
//! [`MAX_FAILURES`] attempts ran and failed. What its own function had no part in (a sandbox that
//! could not be made, a row that could not be written) does not count, and is tried again later.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use uncia_clock::Moment;
use uncia_policy::Nanos;

use super::EventSlot;
use crate::instance::{Outcome, StartError};
use crate::meterlog::{EventUpdate, Recorded};

/// Lambda tries an event that failed twice more.
const MAX_FAILURES: i64 = 3;

/// An event that no worker can hold, or whose package cannot be fetched, waits for so long, as events do on Lambda
/// unless a function says otherwise. Only what this worker has seen of it counts: while a platform is down, nothing
/// is known of what there is room for.
const MAX_STUCK_MS: u64 = 6 * 3_600_000;

/// Payloads up to this size stay in memory while an event waits; larger ones are read from the log
/// when their turn comes, so that many waiting events take little memory.
pub(super) const INLINE_BYTES: usize = 1024;

/// Before an attempt that failed by no fault of the function is repeated: at first, doubled each
/// time up to the longest.
const FIRST_DEFERRAL_MS: u64 = 250;
const LONGEST_DEFERRAL_MS: u64 = 60_000;

const NS_PER_MS: u64 = 1_000_000;

/// An event that is accepted and not done.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    /// In the log.
    pub id: i64,
    pub function: Arc<str>,
    /// Which function of that name: see [`crate::function::Configuration::key`].
    pub function_key: Arc<str>,
    pub request_id: Arc<str>,
    pub invocation: Arc<str>,
    pub parent: Option<Arc<str>>,
    pub stage: Option<Arc<str>>,
    /// Since when it waits for its first attempt.
    pub accepted: Option<Moment>,
    /// How long this worker has had it wait because no worker can hold it, or its package cannot be fetched.
    pub stuck_ms: u64,
    /// The number of the last attempt that has a row.
    pub attempt: i64,
    /// Attempts that ran and failed.
    pub failures: i64,
    pub payload_bytes: usize,
    /// None if it is to be read from the log.
    pub payload: Option<Bytes>,
    pub client_context: Option<Arc<str>>,
    /// Attempts in a row that failed by no fault of the function.
    pub deferrals: u32,
    /// Its place among the events that may wait, given back when it is done.
    pub _slot: Option<EventSlot>,
}

/// What follows once an event's attempt is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextAttempt {
    /// The event is done, and gone from the log.
    None,
    /// It is tried again after so many milliseconds.
    AfterMs(u64),
}

/// How an attempt ended, as far as it matters to the event.
pub(super) enum AttemptEnd<'a> {
    Ran(&'a Outcome),
    NotReady(&'a StartError),
    /// It can never run here.
    Refused,
}

impl QueuedEvent {
    /// Takes note of how the attempt with this number ended. Returns what the log is to be told and
    /// what comes next; `retry_ms` is the wait before the second attempt.
    pub(super) fn attempted(
        &mut self,
        attempt: i64,
        end: &AttemptEnd<'_>,
        retry_ms: u64,
    ) -> (EventUpdate, NextAttempt) {
        let id = self.id;
        self.attempt = attempt;
        match end {
            AttemptEnd::Ran(outcome) if outcome.is_success() => {
                (EventUpdate::Done { id }, NextAttempt::None)
            }
            AttemptEnd::Refused => (EventUpdate::Done { id }, NextAttempt::None),
            AttemptEnd::NotReady(StartError::Sandbox(_)) => {
                (EventUpdate::Attempted { id, attempt }, NextAttempt::AfterMs(self.defer()))
            }
            AttemptEnd::NotReady(StartError::Package(_)) => match self.defer_stuck() {
                Some(delay) => {
                    (EventUpdate::Attempted { id, attempt }, NextAttempt::AfterMs(delay))
                }
                None => (EventUpdate::Done { id }, NextAttempt::None),
            },
            AttemptEnd::Ran(_) | AttemptEnd::NotReady(_) => {
                self.failures += 1;
                self.deferrals = 0;
                self.stuck_ms = 0;
                if self.failures >= MAX_FAILURES {
                    return (EventUpdate::Done { id }, NextAttempt::None);
                }
                let wait = retry_ms.saturating_mul(self.failures.unsigned_abs());
                let update = EventUpdate::Failed { id, attempt, failures: self.failures };
                (update, NextAttempt::AfterMs(wait))
            }
        }
    }

    /// How long to wait, in ms, after an attempt that failed by no fault of the function.
    pub(super) fn defer(&mut self) -> u64 {
        let wait = FIRST_DEFERRAL_MS.saturating_mul(1 << self.deferrals.min(16));
        self.deferrals += 1;
        wait.min(LONGEST_DEFERRAL_MS)
    }

    /// The same after what may pass, and is not waited for any longer then: None.
    pub(super) fn defer_stuck(&mut self) -> Option<u64> {
        if self.stuck_ms >= MAX_STUCK_MS {
            return None;
        }
        let wait = self.defer();
        self.stuck_ms += wait;
        Some(wait)
    }
}

/// An event that waits for a time.
pub(super) struct Delayed {
    pub event: QueuedEvent,
    /// The row of its last attempt that could not be written, and what follows once it is: until
    /// then, the attempt is not repeated.
    pub unwritten: Option<(Arc<Recorded>, NextAttempt)>,
}

/// Events between two attempts, by the time of the next.
#[derive(Default)]
pub(super) struct DelayedEvents {
    by_time: BTreeMap<(Nanos, i64), Delayed>,
}

impl DelayedEvents {
    pub(super) fn insert(&mut self, now: Nanos, delay_ms: u64, event: QueuedEvent) {
        self.insert_delayed(now, delay_ms, Delayed { event, unwritten: None });
    }

    pub(super) fn insert_delayed(&mut self, now: Nanos, delay_ms: u64, delayed: Delayed) {
        let at = now.saturating_add(delay_ms.saturating_mul(NS_PER_MS));
        self.by_time.insert((at, delayed.event.id), delayed);
    }

    pub(super) fn next_at(&self) -> Option<Nanos> {
        self.by_time.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes an event whose time has come.
    pub(super) fn pop_due(&mut self, now: Nanos) -> Option<Delayed> {
        let entry = self.by_time.first_entry()?;
        (entry.key().0 <= now).then(|| entry.remove())
    }

    /// Takes the events of a function.
    pub(super) fn take_function(&mut self, function: &str) -> Vec<Delayed> {
        let all = std::mem::take(&mut self.by_time).into_iter();
        let (of_it, others): (BTreeMap<_, _>, _) =
            all.partition(|(_, delayed)| *delayed.event.function == *function);
        self.by_time = others;
        of_it.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> QueuedEvent {
        QueuedEvent {
            id: 7,
            function: Arc::from("f"),
            function_key: Arc::from(""),
            request_id: Arc::from("r"),
            invocation: Arc::from("i"),
            parent: None,
            stage: None,
            accepted: None,
            stuck_ms: 0,
            attempt: 0,
            failures: 0,
            payload_bytes: 2,
            payload: None,
            client_context: None,
            deferrals: 0,
            _slot: None,
        }
    }

    #[test]
    fn three_failures_end_an_event_and_refusals_do_not() {
        let mut event = event();
        let failed = AttemptEnd::Ran(&Outcome::Timeout);
        let sandbox = StartError::Sandbox("no room".to_owned());
        for attempt in 1..=20 {
            let (update, next) = event.attempted(attempt, &AttemptEnd::NotReady(&sandbox), 100);
            assert_eq!(update, EventUpdate::Attempted { id: 7, attempt });
            assert!(matches!(next, NextAttempt::AfterMs(250..=60_000)));
        }
        let (update, next) = event.attempted(21, &failed, 100);
        assert_eq!(update, EventUpdate::Failed { id: 7, attempt: 21, failures: 1 });
        assert_eq!(next, NextAttempt::AfterMs(100));
        let (_, next) = event.attempted(22, &failed, 100);
        assert_eq!(next, NextAttempt::AfterMs(200));
        let (update, next) = event.attempted(23, &failed, 100);
        assert_eq!((update, next), (EventUpdate::Done { id: 7 }, NextAttempt::None));
    }

    #[test]
    fn an_event_without_a_package_is_given_up_after_six_hours() {
        let mut event = event();
        let package = StartError::Package("the registry is away".to_owned());
        let mut waited = 0;
        let ended = (1..).find_map(|attempt| {
            match event.attempted(attempt, &AttemptEnd::NotReady(&package), 100) {
                (_, NextAttempt::AfterMs(delay)) => {
                    waited += delay;
                    None
                }
                (update, NextAttempt::None) => Some(update),
            }
        });
        assert_eq!(ended, Some(EventUpdate::Done { id: 7 }));
        assert!((MAX_STUCK_MS..MAX_STUCK_MS + LONGEST_DEFERRAL_MS).contains(&waited), "{waited}");
    }

    #[test]
    fn delayed_events_come_in_the_order_of_their_times() {
        let mut delayed = DelayedEvents::default();
        delayed.insert(0, 20, QueuedEvent { id: 1, ..event() });
        delayed.insert(0, 10, QueuedEvent { id: 2, ..event() });
        assert_eq!(delayed.next_at(), Some(10 * NS_PER_MS));
        assert!(delayed.pop_due(9 * NS_PER_MS).is_none());
        assert_eq!(delayed.pop_due(10 * NS_PER_MS).unwrap().event.id, 2);
        delayed.insert(0, 30, QueuedEvent { id: 3, function: Arc::from("g"), ..event() });
        let taken = delayed.take_function("f");
        assert_eq!(taken.iter().map(|it| it.event.id).collect::<Vec<_>>(), [1]);
        assert_eq!(delayed.next_at(), Some(30 * NS_PER_MS));
    }
}
