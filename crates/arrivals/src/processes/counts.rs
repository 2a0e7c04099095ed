use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, check};
use crate::{Arrival, ArrivalError, RandomStream};

/// Given numbers of requests per bucket of time (a trace's requests per minute): exactly n =
/// `counts[i]` requests in [i x bucket, (i + 1) x bucket). Placement within the bucket, with the
/// stream's uniform numbers u and exponential numbers e ([`RandomStream`]):
///
/// ```text
/// equidistant:  floor(j x bucket / n) + floor(u x bucket / n),   j = 0 ... n - 1, one u per bucket
///               (without phase: floor(j x bucket / n))
/// uniform:      floor(u x bucket), n times, sorted
/// exponential:  floor((e_0 + ... + e_j) / (e_0 + ... + e_n) x bucket),   j = 0 ... n - 1
/// ```
///
/// Exponential gaps of a given sum are those of a Poisson process of which the count is known. A
/// bucket without requests takes no random numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Requests in each bucket, in order; each 0 or more, not all zero.
    pub counts: Vec<i64>,
    /// The length of a bucket in nanoseconds; above zero.
    pub bucket_ns: i64,
    /// How requests are placed within their bucket.
    pub placement: CountPlacement,
    /// Equidistant only: shifts each bucket's requests by a random part of their distance, so that
    /// functions are not in lockstep.
    #[serde(default = "yes")]
    pub phase: bool,
}

/// Where in its bucket a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountPlacement {
    /// At equal distances.
    Equidistant,
    /// At independent times, each equally likely.
    Uniform,
    /// With exponential gaps, scaled to the length of the bucket.
    Exponential,
}

fn yes() -> bool {
    true
}

impl Counts {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::list("counts", &self.counts)?;
        check::positive("bucket_ns", self.bucket_ns)?;
        check::span(i128::from(self.bucket_ns) * self.counts.len() as i128)?;
        if self.expected_arrivals() == 0 {
            return Err(ArrivalError::NothingToSend { key: "counts" });
        }
        check::count(self.expected_arrivals())
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        self.counts.iter().map(|&count| count as u128).sum()
    }

    pub(super) fn arrivals(&self, mut stream: RandomStream) -> Arrivals {
        let (bucket_ns, placement, phase) = (self.bucket_ns, self.placement, self.phase);
        let buckets = self.counts.clone().into_iter().zip(0i64..).filter(|(count, _)| *count > 0);
        let times = buckets.flat_map(move |(count, index)| {
            let within = match placement {
                CountPlacement::Equidistant => equidistant(&mut stream, count, bucket_ns, phase),
                CountPlacement::Uniform => uniform(&mut stream, count, bucket_ns),
                CountPlacement::Exponential => exponential(&mut stream, count, bucket_ns),
            };
            within.map(move |time| Arrival::single(index * bucket_ns + time))
        });
        Box::new(times.fuse())
    }
}

type Times = Box<dyn Iterator<Item = i64> + Send>;

fn equidistant(stream: &mut RandomStream, count: i64, bucket_ns: i64, phase: bool) -> Times {
    let shift = if phase { stream.whole_below(bucket_ns as u64, count as u64) as i64 } else { 0 };
    let place = move |j| (i128::from(j) * i128::from(bucket_ns) / i128::from(count)) as i64;
    Box::new((0..count).map(move |j| place(j) + shift))
}

fn uniform(stream: &mut RandomStream, count: i64, bucket_ns: i64) -> Times {
    let draw = |_| stream.whole_below(bucket_ns as u64, 1) as i64;
    let mut times: Vec<i64> = (0..count).map(draw).collect();
    times.sort_unstable();
    Box::new(times.into_iter())
}

fn exponential(stream: &mut RandomStream, count: i64, bucket_ns: i64) -> Times {
    let mut sum = 0.0;
    let mut next = || {
        sum += stream.exponential();
        sum
    };
    let sums: Vec<f64> = (0..count).map(|_| next()).collect();
    let whole = next();
    // Rounding, or a last number of zero, must not carry a time out of its bucket.
    let place = move |sum| ((sum / whole * bucket_ns as f64) as i64).min(bucket_ns - 1);
    Box::new(sums.into_iter().map(place))
}

impl fmt::Display for Counts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "counts({} in {} buckets of {} ns, {:?})",
            self.expected_arrivals(),
            self.counts.len(),
            self.bucket_ns,
            self.placement
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        KS_CRITICAL, assert_keeps_promises, assert_labels_are_independent, gaps,
        kolmogorov_smirnov, times,
    };
    use crate::{MAX_SPAN_NS, NS_PER_S, Process};
    use proptest::prelude::*;

    const PLACEMENTS: [CountPlacement; 3] =
        [CountPlacement::Equidistant, CountPlacement::Uniform, CountPlacement::Exponential];

    fn with(counts: &[i64], bucket_ns: i64, placement: CountPlacement) -> Counts {
        Counts { counts: counts.to_vec(), bucket_ns, placement, phase: true }
    }

    #[test]
    fn equidistant_without_phase_is_the_plain_formula() {
        let plain = |counts, bucket| {
            let counts =
                Counts { phase: false, ..with(counts, bucket, CountPlacement::Equidistant) };
            times(&counts.into(), 1, "a")
        };
        assert_eq!(plain(&[2, 0, 3], 100), [0, 50, 200, 233, 266]);
        assert_eq!(plain(&[5], 2), [0, 0, 0, 1, 1]);
    }

    /// Computed by an independent implementation of the derivation and the formulas.
    #[test]
    fn known_answers() {
        let known =
            |placement| times(&with(&[3, 0, 2], 60 * NS_PER_S, placement).into(), 7, "trace");
        assert_eq!(
            known(CountPlacement::Equidistant),
            [9_811_308_253, 29_811_308_253, 49_811_308_253, 140_487_340_548, 170_487_340_548]
        );
        assert_eq!(
            known(CountPlacement::Uniform),
            [29_433_924_759, 37_480_023_318, 40_974_681_097, 137_451_775_431, 169_380_304_560]
        );
        assert_eq!(
            known(CountPlacement::Exponential),
            [12_860_310_352, 34_761_019_221, 53_446_294_950, 154_319_799_553, 169_028_746_829]
        );
    }

    #[test]
    fn placements_have_their_distributions() {
        let bucket = 60 * NS_PER_S;
        for placement in [CountPlacement::Uniform, CountPlacement::Exponential] {
            let process = Process::from(with(&[2_000; 3], bucket, placement));
            let times = times(&process, 3, "ks");
            for (index, minute) in times.chunks(2_000).enumerate() {
                let place = |&time: &i64| (time - index as i64 * bucket) as f64 / bucket as f64;
                let statistic = kolmogorov_smirnov(minute.iter().map(place).collect(), |x| x);
                assert!(statistic < KS_CRITICAL, "{placement:?}: {statistic}");
                let mean = bucket as f64 / 2_001.0;
                let statistic = kolmogorov_smirnov(gaps(minute), |x| 1.0 - (-x / mean).exp());
                assert!(statistic < KS_CRITICAL, "{placement:?}: {statistic}");
            }
        }
        let even = Process::from(with(&[2_000], bucket, CountPlacement::Equidistant));
        let gaps = gaps(&times(&even, 3, "ks"));
        assert!(kolmogorov_smirnov(gaps, |x| 1.0 - (-x / 3e7).exp()) > KS_CRITICAL);
    }

    #[test]
    fn functions_are_not_in_lockstep() {
        for placement in [CountPlacement::Uniform, CountPlacement::Exponential] {
            assert_labels_are_independent(&with(&[500; 10], NS_PER_S, placement).into());
        }
        let phases = |label| {
            let counts = [1; 2_000];
            let times =
                times(&with(&counts, NS_PER_S, CountPlacement::Equidistant).into(), 7, label);
            times.iter().map(|time| (time % NS_PER_S) as f64 / 1e9).collect::<Vec<_>>()
        };
        let (a, b) = (phases("hello-0"), phases("hello-1"));
        assert!(crate::test_support::correlation(&a, &b).abs() < 0.12);
        assert!(kolmogorov_smirnov(a, |x| x) < KS_CRITICAL);
    }

    #[test]
    fn bad_values_are_sentences() {
        let with =
            |counts: &[i64], bucket| with(counts, bucket, CountPlacement::Uniform).validate();
        assert_eq!(with(&[], 1), Err(ArrivalError::Empty { key: "counts" }));
        let negative = ArrivalError::NegativeEntry { key: "counts", index: 2, value: -7 };
        assert_eq!(with(&[1, 2, -7], 1), Err(negative));
        assert_eq!(with(&[1], 0), Err(ArrivalError::NotPositive { key: "bucket_ns", ns: 0 }));
        assert_eq!(with(&[0, 0], 1), Err(ArrivalError::NothingToSend { key: "counts" }));
        assert_eq!(with(&[1, 1], MAX_SPAN_NS), Err(ArrivalError::TooLong));
        assert!(matches!(with(&[i64::MAX; 3], 1), Err(ArrivalError::TooMany { .. })));
    }

    proptest! {
        #[test]
        fn every_bucket_has_its_count(
            counts in prop::collection::vec(0i64..40, 1..20),
            bucket_ns in prop_oneof![1i64..50, 1i64..1_000_000_000_000, Just(MAX_SPAN_NS / 20)],
            placement in prop::sample::select(&PLACEMENTS[..]), phase: bool, seed: u64,
        ) {
            prop_assume!(counts.iter().any(|&count| count > 0));
            let process =
                Process::from(Counts { counts: counts.clone(), bucket_ns, placement, phase });
            let end = counts.len() as i64 * bucket_ns;
            assert_keeps_promises(&process, seed, "counts", end);
            let mut found = vec![0; counts.len()];
            for time in times(&process, seed, "counts") {
                found[(time / bucket_ns) as usize] += 1;
            }
            prop_assert_eq!(found, counts);
        }
    }
}
