//! Moments: durations by the monotonic clock, stamps by the real-time clock.
//!
//! The real-time clock can be set while a program runs, by a day either way; what lies between two
//! of its readings is then no duration. A [`Moment`] therefore reads both clocks, and
//! [`Moment::since`] uses the monotonic one alone. Other processes on the machine read the same
//! monotonic clock, so that their readings can be placed, too ([`Moment::at_monotonic`]).

#![warn(missing_docs)]

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds in a second.
pub const NS_PER_S: i64 = 1_000_000_000;

/// The real-time clock: Unix time in nanoseconds.
pub fn unix_ns() -> i64 {
    read(ClockId::Realtime)
}

/// The monotonic clock (`CLOCK_MONOTONIC`) in nanoseconds since some moment before this process.
pub fn monotonic_ns() -> i64 {
    read(ClockId::Monotonic)
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * NS_PER_S + time.tv_nsec
}

/// A moment, read from both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    unix: i64,
    monotonic: i64,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        Self { monotonic: monotonic_ns(), unix: unix_ns() }
    }

    /// When the monotonic clock stood at `monotonic` ns; its Unix time is what the real-time clock
    /// would have said then, as it is set now.
    pub fn at_monotonic(monotonic: i64) -> Self {
        Self::now().moved_to(monotonic)
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
        self.moved_to(self.monotonic.saturating_add(ns))
    }

    fn moved_to(self, monotonic: i64) -> Self {
        Self { unix: self.unix.saturating_add(monotonic - self.monotonic), monotonic }
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
    fn a_reading_of_another_process_is_placed_by_the_monotonic_clock() {
        let now = Moment::now();
        let earlier = Moment::at_monotonic(now.monotonic() - 7 * NS_PER_S);
        assert_eq!(now.since(earlier), 7 * NS_PER_S);
        let apart = now.unix() - 7 * NS_PER_S - earlier.unix();
        assert!(apart.abs() < NS_PER_S, "{apart} ns apart");
    }
}
