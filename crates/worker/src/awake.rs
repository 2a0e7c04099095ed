//! CPUs that stay awake while requests come.
//!
//! A CPU that sleeps takes 50 to 100 us to be woken, and a request wakes three: for the worker, for the
//! runtime, and for the client. See [`uncia_process::idle`] for what waiting awake costs whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use uncia_clock::monotonic_ns;
use uncia_process::idle::{self, Awake};

/// Keeps the machine's CPUs awake for a while after each answer.
pub(crate) struct StayAwake {
    stay: Duration,
    /// When the last answer was given, by the monotonic clock.
    answered: AtomicI64,
    /// Whether the CPUs may sleep until there is an answer.
    asleep: AtomicBool,
    wake: Notify,
    /// Open as long as the task lives.
    alive: watch::Receiver<()>,
    /// Why the CPUs cannot be kept awake, though they should be.
    obstacle: Option<String>,
}

impl StayAwake {
    /// Starts the task that keeps them awake, `stay` after each answer; 0: never.
    pub(crate) fn start(stay: Duration) -> Arc<Self> {
        let obstacle = if stay.is_zero() { None } else { idle::obstacle() };
        let (task, alive) = watch::channel(());
        let stays = !stay.is_zero() && obstacle.is_none();
        let awake = Arc::new(Self {
            stay,
            answered: AtomicI64::new(0),
            asleep: AtomicBool::new(stays),
            wake: Notify::new(),
            alive,
            obstacle,
        });
        tokio::spawn(awake.clone().run(task));
        awake
    }

    /// Notes an answer, just before it is written. After a pause the task runs once it has been: nobody
    /// waits for the CPUs.
    pub(crate) fn note_answer(&self) {
        if self.stay.is_zero() {
            return;
        }
        self.answered.store(monotonic_ns(), Ordering::Relaxed);
        if self.asleep.swap(false, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }

    /// Why the CPUs are not kept awake, though they should be: a sentence.
    pub(crate) fn warning(&self) -> Option<String> {
        let obstacle = self.obstacle.as_ref()?;
        Some(format!("CPUs are not kept awake (stay_awake): {obstacle}."))
    }

    /// Resolves if the task ends, which it does not by itself.
    pub(crate) async fn ended(&self) {
        // No value is sent, so this is the end of the sender.
        let _ = self.alive.clone().changed().await;
    }

    async fn run(self: Arc<Self>, _alive: watch::Sender<()>) {
        loop {
            self.wake.notified().await;
            match Awake::keep() {
                Ok(awake) => {
                    self.pause().await;
                    drop(awake);
                }
                // It could be at the start, so this is out of descriptors, say: the next pause is
                // followed by another attempt.
                Err(error) => {
                    tracing::warn!("CPUs cannot be kept awake for now: {error}");
                    self.pause().await;
                }
            }
            self.asleep.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until the last answer is as long ago as CPUs are to stay awake.
    async fn pause(&self) {
        loop {
            let passed = monotonic_ns().saturating_sub(self.answered.load(Ordering::Relaxed));
            let passed = Duration::from_nanos(passed.max(0).cast_unsigned());
            let Some(left) = self.stay.checked_sub(passed).filter(|left| !left.is_zero()) else {
                return;
            };
            tokio::time::sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_a_duration_nothing_is_asked_for() {
        let awake = StayAwake::start(Duration::ZERO);
        awake.note_answer();
        assert!(!awake.asleep.load(Ordering::Relaxed));
        assert_eq!((awake.warning(), awake.answered.load(Ordering::Relaxed)), (None, 0));
        let ended = tokio::time::timeout(Duration::from_millis(1), awake.ended()).await;
        assert!(ended.is_err(), "the task waits");
    }

    #[tokio::test]
    async fn cpus_sleep_again_once_there_are_no_answers() {
        let awake = StayAwake::start(Duration::from_millis(50));
        if awake.warning().is_some() {
            eprintln!("not run: {}", awake.warning().unwrap_or_default());
            return;
        }
        for _ in 0..2 {
            assert!(awake.asleep.load(Ordering::Relaxed));
            awake.note_answer();
            assert!(!awake.asleep.load(Ordering::Relaxed));
            while !awake.asleep.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let passed = monotonic_ns() - awake.answered.load(Ordering::Relaxed);
            assert!(passed >= 50_000_000, "{passed}");
        }
    }
}
