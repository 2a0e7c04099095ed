//! The client's clock.

use uncia_clock::{Moment, monotonic_ns};
use uncia_record::Epoch;

/// Nanoseconds since the run's epoch, by the monotonic clock: set against the real-time clock once,
/// so that a clock step during the run moves nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    offset: i64,
    epoch: i64,
}

impl Clock {
    /// The monotonic clock as it is, for what needs no epoch.
    pub(crate) fn monotonic() -> Self {
        Self { offset: 0, epoch: 0 }
    }

    /// `now` says how the two clocks stand to each other.
    pub(crate) fn since(epoch: Epoch, now: Moment) -> Self {
        let epoch = epoch.unix_ns();
        Self { offset: now.unix() - now.monotonic() - epoch, epoch }
    }

    pub(crate) fn now(self) -> i64 {
        monotonic_ns() + self.offset
    }

    /// A time of this clock as Unix time.
    pub(crate) fn unix(self, time: i64) -> i64 {
        time + self.epoch
    }
}

#[cfg(test)]
mod tests {
    use uncia_clock::{NS_PER_S, unix_ns};

    use super::*;

    #[test]
    fn agrees_with_the_real_time_clock_and_never_goes_back() {
        let epoch = Epoch::from_unix_ns(unix_ns() - 5 * NS_PER_S);
        let clock = Clock::since(epoch, Moment::exact());
        let mut last = clock.now();
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let drift = (unix_ns() - epoch.unix_ns() - clock.now()).abs();
        assert!(drift < NS_PER_S, "{drift} ns apart");
    }
}
