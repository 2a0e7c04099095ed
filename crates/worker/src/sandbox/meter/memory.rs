//! The memory of an invocation, from samples.

use std::time::Instant;

use uncia_policy::sharing::{divide, lent_memory};

/// What an instance uses while it serves, and what is reserved for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryUse {
    pub used: u64,
    /// None if it is preemptible.
    pub reserved: Option<u64>,
}

impl MemoryUse {
    /// What it has reserved and does not use.
    fn idle(self) -> u64 {
        self.reserved.map_or(0, |reserved| reserved.saturating_sub(self.used))
    }
}

/// What is lent of all memory that is reserved and idle.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lending {
    lent: u64,
    idle: u64,
}

impl Lending {
    /// What somebody lends who came after it was counted.
    pub(super) fn of(self, one: MemoryUse) -> u64 {
        let idle = one.idle();
        let share = u128::from(self.lent) * u128::from(idle);
        share.checked_div(u128::from(self.idle.max(idle))).map_or(0, |it| it as u64)
    }
}

/// Counts what all who serve lend, on a platform with so much memory; `lend(index, bytes)` is called for
/// each.
pub(super) fn count_lent(
    capacity: u64,
    uses: &[MemoryUse],
    mut lend: impl FnMut(usize, u64),
) -> Lending {
    let reserved = uses.iter().filter_map(|it| it.reserved).sum();
    let preemptible = uses.iter().filter(|it| it.reserved.is_none()).map(|it| it.used).sum();
    let lent = lent_memory(capacity, reserved, preemptible);
    let parties = uses.iter().enumerate().map(|(index, it)| (it.idle(), it.idle(), index));
    let mut parties: Vec<_> = parties.collect();
    let idle = parties.iter().map(|(idle, ..)| idle).sum();
    for (index, one) in uses.iter().enumerate() {
        if one.idle() == 0 {
            lend(index, 0);
        }
    }
    divide(lent, &mut parties, &mut lend);
    Lending { lent: lent.min(idle), idle }
}

/// The time-weighted average of samples, by trapezoids.
#[derive(Debug, Default)]
pub(super) struct MemoryAverage {
    last: Option<(Instant, i64)>,
    /// Twice the area, in byte ns.
    double_area: i128,
    ns: i128,
    peak: Option<i64>,
}

impl MemoryAverage {
    pub(super) fn add(&mut self, now: Instant, bytes: i64) {
        if let Some((then, before)) = self.last {
            // The sampler's clock may be read before the start's.
            let ns = now.saturating_duration_since(then).as_nanos() as i128;
            self.double_area += ns * (i128::from(before) + i128::from(bytes));
            self.ns += ns;
        }
        self.last = Some((now, bytes));
        self.peak = self.peak.max(Some(bytes));
    }

    pub(super) fn average(&self) -> Option<i64> {
        let (_, last) = self.last?;
        if self.ns == 0 {
            return Some(last);
        }
        i64::try_from(self.double_area / (2 * self.ns)).ok()
    }

    pub(super) fn peak(&self) -> Option<i64> {
        self.peak
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_average_is_weighted_by_time() {
        let start = Instant::now();
        let mut average = MemoryAverage::default();
        assert_eq!(average.average(), None);
        average.add(start, 100);
        assert_eq!(average.average(), Some(100));
        average.add(start + Duration::from_millis(10), 100);
        average.add(start + Duration::from_millis(10), 400);
        average.add(start + Duration::from_millis(40), 400);
        assert_eq!(average.average(), Some((100 * 10 + 400 * 30) / 40));
        assert_eq!(average.peak(), Some(400));
    }

    #[test]
    fn idle_memory_is_lent_in_proportion() {
        let reserves = |used, reserved| MemoryUse { used, reserved: Some(reserved) };
        let batch = |used| MemoryUse { used, reserved: None };
        let uses = [reserves(10, 40), batch(50), reserves(10, 20), reserves(5, 5)];
        let lent = |capacity| {
            let mut lent = [u64::MAX; 4];
            let all = count_lent(capacity, &uses, |index, bytes| lent[index] = bytes);
            (lent, all.of(reserves(0, 10)))
        };
        // 65 are reserved, and 50 used without.
        assert_eq!(lent(115), ([0; 4], 0));
        assert_eq!(lent(95), ([15, 0, 5, 0], 5));
        assert_eq!(lent(0), ([30, 0, 10, 0], 10), "no more than is idle");
    }

    proptest! {
        #[test]
        fn the_average_lies_between_the_samples(
            samples in proptest::collection::vec((0_u64..1_000_000_000, 0_i64..1 << 45), 1..50),
        ) {
            let mut now = Instant::now();
            let mut average = MemoryAverage::default();
            for (step, bytes) in &samples {
                now += Duration::from_nanos(*step);
                average.add(now, *bytes);
            }
            let low = samples.iter().map(|(_, bytes)| *bytes).min().unwrap();
            let high = samples.iter().map(|(_, bytes)| *bytes).max().unwrap();
            let mean = average.average().unwrap();
            prop_assert!((low..=high).contains(&mean));
        }
    }
}
