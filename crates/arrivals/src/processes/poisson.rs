use std::fmt;

use serde::{Deserialize, Serialize};

use super::renewal::renewal;
use super::{Arrivals, check};
use crate::{ArrivalError, RandomStream, Rate};

/// A Poisson process: independent, exponentially distributed gaps of mean 1 / rate,
///
/// ```text
/// t_k = t_(k-1) + round(e_k x 10^9 / rate) ns,   t_(-1) = 0,   for as long as t_k < duration
/// ```
///
/// where e_k are the exponential numbers of the stream ([`RandomStream`]), `10^9 / rate` is the
/// nearest double and halves round away from zero. Gaps are whole nanoseconds before they are
/// added, so that a time does not depend on how a sum of doubles was rounded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poisson {
    /// Requests per second, on average.
    pub rate_per_s: Rate,
    /// Nanoseconds after which no request is sent; above zero.
    pub duration_ns: i64,
}

impl Poisson {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::rate_over(self.rate_per_s, self.duration_ns)
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        check::arrivals_at(self.rate_per_s.per_second(), self.duration_ns)
    }

    pub(super) fn arrivals(&self, mut stream: RandomStream) -> Arrivals {
        let mean_ns = self.rate_per_s.mean_gap_ns();
        renewal(self.duration_ns, move || libm::round(stream.exponential() * mean_ns) as i64)
    }
}

impl fmt::Display for Poisson {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "poisson({}/s for {} ns)", self.rate_per_s, self.duration_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NS_PER_S;
    use crate::test_support::{KS_CRITICAL, kolmogorov_smirnov};
    use proptest::prelude::*;

    fn times(seed: u64, label: &str, rate: &str, duration_ns: i64) -> Vec<i64> {
        let process = Poisson { rate_per_s: rate.parse().unwrap(), duration_ns };
        process.validate().unwrap();
        process.arrivals(RandomStream::new(seed, label)).map(|arrival| arrival.offset).collect()
    }

    /// Computed by an independent implementation of the derivation and the formula.
    #[test]
    fn known_answers() {
        let known = times(7, "hello", "1000", NS_PER_S);
        assert_eq!(known[..5], [2_402_242, 3_033_086, 3_192_697, 3_524_778, 4_240_016]);
        assert_eq!(known.len(), 1_027);
    }

    #[test]
    fn gaps_are_exponential_and_times_uniform() {
        for (seed, rate) in [(1, "50"), (2, "1000"), (3, "20000")] {
            let duration = 5 * NS_PER_S;
            let times = times(seed, "ks", rate, duration);
            let mean = 1e9 / rate.parse::<f64>().unwrap();
            let gaps = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
            let statistic = kolmogorov_smirnov(gaps, |x| 1.0 - (-x / mean).exp());
            assert!(statistic < KS_CRITICAL, "gaps at {rate}/s: {statistic}");
            let places = times.iter().map(|&time| time as f64).collect();
            let statistic = kolmogorov_smirnov(places, |x| x / duration as f64);
            assert!(statistic < KS_CRITICAL, "times at {rate}/s: {statistic}");
        }
    }

    #[test]
    fn counts_scatter_as_a_poisson_variable_does() {
        let windows = 1_000;
        let times = times(9, "dispersion", "1000", windows * NS_PER_S / 10);
        let mut counts = vec![0f64; windows as usize];
        for time in times {
            counts[(time / (NS_PER_S / 10)) as usize] += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / windows as f64;
        let variance =
            counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / (windows - 1) as f64;
        // The ratio is 1 with a standard error of sqrt(2 / windows) = 0.045.
        assert!((variance / mean - 1.0).abs() < 0.18, "{}", variance / mean);
    }

    #[test]
    fn streams_are_uncorrelated() {
        let gaps = |label| -> Vec<f64> {
            let times = times(7, label, "1000", 20 * NS_PER_S);
            times
                .windows(2)
                .take(15_000)
                .map(|pair| (pair[1] - pair[0]) as f64 / 1e6 - 1.0)
                .collect()
        };
        let (a, b) = (gaps("hello-0"), gaps("hello-1"));
        let correlation = a.iter().zip(&b).map(|(x, y)| x * y).sum::<f64>() / a.len() as f64;
        // Four standard errors of 1 / sqrt(15,000).
        assert!(correlation.abs() < 0.033, "{correlation}");
    }

    proptest! {
        #[test]
        fn sorted_within_and_repeatable(
            seed: u64, label in ".{0,20}", rate in 1u32..2_000, duration_ns in 1i64..2_000_000_000
        ) {
            let rate = rate.to_string();
            let first = times(seed, &label, &rate, duration_ns);
            prop_assert!(first.is_sorted());
            prop_assert!(first.iter().all(|&time| (0..duration_ns).contains(&time)));
            prop_assert_eq!(&first, &times(seed, &label, &rate, duration_ns));
            // A longer run begins with the shorter one.
            let longer = times(seed, &label, &rate, duration_ns * 2);
            prop_assert_eq!(&first[..], &longer[..first.len()]);
        }
    }
}
