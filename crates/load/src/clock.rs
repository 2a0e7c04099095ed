//! The client's clock.

use rustix::time::{ClockId, clock_gettime};
use uncia_arrivals::NS_PER_S;
use uncia_record::Epoch;

/// Pairs of readings from which the closest is taken: an interruption between the two readings of
/// a pair would shift every time of the run.
const OFFSET_SAMPLES: usize = 16;

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * NS_PER_S + time.tv_nsec
}

/// Now, as Unix time in nanoseconds.
pub fn unix_now() -> i64 {
    read(ClockId::Realtime)
}

/// Nanoseconds since the run's epoch, by the monotonic clock: set against the real-time clock once,
/// so that a clock step during the run moves nothing.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    offset: i64,
    epoch: i64,
}

impl Clock {
    /// The monotonic clock as it is, for what needs no epoch.
    pub fn monotonic() -> Self {
        Self { offset: 0, epoch: 0 }
    }

    pub fn since(epoch: Epoch) -> Self {
        let sample = || {
            let before = read(ClockId::Monotonic);
            let unix = read(ClockId::Realtime);
            let after = read(ClockId::Monotonic);
            (after - before, unix - (before + (after - before) / 2))
        };
        let samples = (0..OFFSET_SAMPLES).map(|_| sample());
        let (_, offset) = samples.min_by_key(|(width, _)| *width).expect("there are samples");
        Self { offset: offset - epoch.unix_ns(), epoch: epoch.unix_ns() }
    }

    pub fn now(self) -> i64 {
        read(ClockId::Monotonic) + self.offset
    }

    /// A time of this clock as Unix time.
    pub fn unix(self, time: i64) -> i64 {
        time + self.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_real_time_clock_and_never_goes_back() {
        let epoch = Epoch::from_unix_ns(unix_now() - 5 * NS_PER_S);
        let clock = Clock::since(epoch);
        let mut last = clock.now();
        for _ in 0..1_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        let drift = (unix_now() - epoch.unix_ns() - clock.now()).abs();
        assert!(drift < NS_PER_S, "{drift} ns apart");
    }
}
