//! Moments: durations by the monotonic clock, stamps by the real-time clock.
//!
//! The real-time clock can be set while a program runs, by a day either way; what lies between two
//! of its readings is then no duration. A [`Moment`] therefore reads both clocks, and
//! [`Moment::since`] uses the monotonic one alone. Other processes on the machine read the same
//! monotonic clock, so that their readings can be stamped, too ([`Moment::at`]).

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds in a second.
pub const NS_PER_S: i64 = 1_000_000_000;

/// Pairs of readings of which [`Moment::exact`] takes the closest.
const EXACT_SAMPLES: usize = 16;

/// By how much tests have set the real-time clock.
static STEP: AtomicI64 = AtomicI64::new(0);

/// The real-time clock: Unix time in nanoseconds.
pub fn unix_ns() -> i64 {
    read(ClockId::Realtime).saturating_add(STEP.load(Ordering::Relaxed))
}

/// The monotonic clock (`CLOCK_MONOTONIC`) in nanoseconds since some moment before this process.
pub fn monotonic_ns() -> i64 {
    read(ClockId::Monotonic)
}

/// CPU time that the calling thread has had, in nanoseconds.
pub fn thread_cpu_ns() -> i64 {
    read(ClockId::ThreadCPUTime)
}

/// CPU time that this process has had, in nanoseconds.
pub fn process_cpu_ns() -> i64 {
    read(ClockId::ProcessCPUTime)
}

/// Has this process see the real-time clock `ns` later from now on, as after a step: for tests,
/// since setting the clock itself would disturb the whole machine.
#[doc(hidden)]
pub fn step_real_time(ns: i64) {
    STEP.fetch_add(ns, Ordering::Relaxed);
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * NS_PER_S + time.tv_nsec
}

/// A moment, read from both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moment {
    unix: i64,
    monotonic: i64,
}

impl Moment {
    /// A moment by its readings in ns.
    pub fn new(unix: i64, monotonic: i64) -> Self {
        Self { unix, monotonic }
    }

    /// Now.
    pub fn now() -> Self {
        Self { monotonic: monotonic_ns(), unix: unix_ns() }
    }

    /// Now, read as close together as possible: for a moment by which many others are stamped, since
    /// an interruption between the two readings would shift them all.
    pub fn exact() -> Self {
        let sample = || {
            let before = monotonic_ns();
            let unix = unix_ns();
            let after = monotonic_ns();
            (after - before, Self { unix, monotonic: before + (after - before) / 2 })
        };
        let first = sample();
        let samples = (1..EXACT_SAMPLES).map(|_| sample());
        samples.fold(first, |best, next| if next.0 < best.0 { next } else { best }).1
    }

    /// When the monotonic clock stood at `monotonic` ns; its Unix time is what the real-time clock
    /// would have said then, as it is set now.
    pub fn at_monotonic(monotonic: i64) -> Self {
        Self::now().at(monotonic)
    }

    /// When the monotonic clock stood at `monotonic` ns, by the real-time clock as it was set at this
    /// moment: between moments stamped by the same one, Unix times differ as the monotonic ones do.
    #[must_use]
    pub fn at(self, monotonic: i64) -> Self {
        Self { unix: self.unix.saturating_add(monotonic - self.monotonic), monotonic }
    }

    /// Unix time in ns, as the real-time clock was set at that moment.
    pub fn unix(self) -> i64 {
        self.unix
    }

    /// Reading of the monotonic clock in ns.
    pub fn monotonic(self) -> i64 {
        self.monotonic
    }

    /// Nanoseconds from `earlier` to this moment; negative if it is later.
    pub fn since(self, earlier: Self) -> i64 {
        self.monotonic - earlier.monotonic
    }

    /// `ns` later, by both clocks.
    #[must_use]
    pub fn plus(self, ns: i64) -> Self {
        self.at(self.monotonic.saturating_add(ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_moment_is_later_by_both_clocks() {
        let first = Moment::now();
        let second = Moment::now();
        assert!(second.since(first) >= 0);
        assert_eq!(first.plus(5).since(first), 5);
        assert_eq!(first.plus(5).unix() - first.unix(), 5);
    }

    #[test]
    fn working_costs_cpu_time() {
        let (thread, process) = (thread_cpu_ns(), process_cpu_ns());
        while thread_cpu_ns() - thread < 1_000_000 {}
        assert!(process_cpu_ns() > process);
    }

    #[test]
    fn a_step_of_the_clock_moves_stamps_and_no_duration() {
        const DAY: i64 = 86_400 * NS_PER_S;
        for step in [DAY, -DAY] {
            let before = Moment::new(1_000 * DAY, 70);
            let after = Moment::new(1_000 * DAY + step + 5, 75);
            assert_eq!(after.since(before), 5);
            assert_eq!(before.at(after.monotonic()).unix() - before.unix(), 5);
        }
    }

    #[test]
    fn a_reading_of_another_process_is_placed_by_the_monotonic_clock() {
        let now = Moment::exact();
        let earlier = Moment::at_monotonic(now.monotonic() - 7 * NS_PER_S);
        assert_eq!(now.since(earlier), 7 * NS_PER_S);
        let apart = now.unix() - 7 * NS_PER_S - earlier.unix();
        assert!(apart.abs() < NS_PER_S, "{apart} ns apart");
    }
}
