//! Durations, counted in fixed buckets.

/// The upper bounds of the buckets in ns; a last bucket has no bound. From half a millisecond, in which
/// a warm invocation of a prepared process ends, to the longest time limit of a function.
pub(crate) const BOUNDS_NS: [u64; 19] = [
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    120_000_000_000,
    300_000_000_000,
    900_000_000_000,
];

/// How many durations are in which bucket.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    buckets: [u64; BOUNDS_NS.len()],
    count: u64,
    sum_ns: u128,
}

impl Histogram {
    /// Adds a duration in ns.
    pub(crate) fn add(&mut self, ns: i64) {
        let ns = u64::try_from(ns).unwrap_or(0);
        self.count += 1;
        self.sum_ns += u128::from(ns);
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < ns);
        if let Some(bucket) = self.buckets.get_mut(bucket) {
            *bucket += 1;
        }
    }

    /// How many durations it has.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Their sum in ns.
    pub(crate) fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// Each bound with the number of durations up to it.
    pub(crate) fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut total = 0;
        BOUNDS_NS.iter().zip(&self.buckets).map(move |(bound, bucket)| {
            total += bucket;
            (*bound, total)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_what_is_above_all_to_none() {
        let mut histogram = Histogram::default();
        for ns in [500_000, 500_001, 900_000_000_001, -5] {
            histogram.add(ns);
        }
        let counts: Vec<u64> = histogram.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts[..3], [2, 3, 3]);
        assert_eq!((counts[18], histogram.count()), (3, 4));
        assert_eq!(histogram.sum_ns(), 900_001_000_002);
    }
}
