//! The memory of an invocation, from samples.

use std::time::Instant;

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
