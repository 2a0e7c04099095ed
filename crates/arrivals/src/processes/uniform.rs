use std::fmt;

use serde::{Deserialize, Serialize};

use super::renewal::renewal;
use super::{Arrivals, check};
use crate::{ArrivalError, Gap, RandomStream, gap};

/// Independent gaps, each whole number of nanoseconds from the smallest to the largest being as likely
/// as any other:
///
/// ```text
/// gap_k = min_gap + floor(u_k x (max_gap - min_gap + 1))
/// t_k = t_(k-1) + gap_k,   t_(-1) = 0,   for as long as t_k < duration
/// ```
///
/// where u_k are the uniform numbers of the stream ([`RandomStream`]), used exactly. None are used if
/// the smallest gap is the largest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uniform {
    /// The shortest gap in nanoseconds, 0 or more.
    pub min_gap_ns: i64,
    /// The longest gap in nanoseconds, above zero and at least `min_gap_ns`.
    pub max_gap_ns: i64,
    /// Nanoseconds after which no request is sent; above zero.
    pub duration_ns: i64,
}

impl Uniform {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::duration(self.duration_ns)?;
        gap::uniform(("min_gap_ns", self.min_gap_ns), ("max_gap_ns", self.max_gap_ns))?;
        check::positive("max_gap_ns", self.max_gap_ns)?;
        check::count(self.expected_arrivals())
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        (self.duration_ns as f64 / self.gap().mean_ns()) as u128
    }

    fn gap(&self) -> Gap {
        Gap::Uniform { min_ns: self.min_gap_ns, max_ns: self.max_gap_ns }
    }

    pub(super) fn arrivals(&self, mut stream: RandomStream) -> Arrivals {
        let gap = self.gap().distribution();
        renewal(self.duration_ns, move || gap.draw_ns(&mut stream))
    }
}

impl fmt::Display for Uniform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min_gap_ns, max_gap_ns, duration_ns } = self;
        write!(formatter, "uniform(every {min_gap_ns} to {max_gap_ns} ns for {duration_ns} ns)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        KS_CRITICAL, assert_keeps_promises, assert_labels_are_independent, gaps,
        kolmogorov_smirnov, times,
    };
    use crate::{NS_PER_S, Process};
    use proptest::prelude::*;

    fn with(min_gap_ns: i64, max_gap_ns: i64, duration_ns: i64) -> Process {
        Uniform { min_gap_ns, max_gap_ns, duration_ns }.into()
    }

    /// Computed by an independent implementation of the derivation and the formula.
    #[test]
    fn known_answers() {
        let known = times(&with(500_000, 1_500_000, NS_PER_S), 7, "hello");
        assert_eq!(known[..4], [1_409_486, 2_377_343, 3_024_867, 3_807_438]);
        assert_eq!(known.len(), 1_006);
    }

    #[test]
    fn equal_bounds_are_a_constant_rate() {
        assert_eq!(times(&with(10, 10, 35), 1, "a"), [10, 20, 30]);
    }

    #[test]
    fn gaps_have_their_distribution() {
        let gaps = gaps(&times(&with(500_000, 1_500_000, 10 * NS_PER_S), 1, "ks"));
        let statistic = kolmogorov_smirnov(gaps.clone(), |x| x / 1e6 - 0.5);
        assert!(statistic < KS_CRITICAL, "{statistic}");
        assert!(kolmogorov_smirnov(gaps, |x| 1.0 - (-x / 1e6).exp()) > KS_CRITICAL);
    }

    #[test]
    fn streams_are_uncorrelated() {
        assert_labels_are_independent(&with(0, 2_000_000, 10 * NS_PER_S));
    }

    #[test]
    fn bad_values_are_sentences() {
        let validated = |min_gap_ns, max_gap_ns, duration_ns| {
            Uniform { min_gap_ns, max_gap_ns, duration_ns }.validate()
        };
        assert_eq!(validated(0, 1, 0), Err(ArrivalError::Duration { ns: 0 }));
        let zero = ArrivalError::NotPositive { key: "max_gap_ns", ns: 0 };
        assert_eq!(validated(0, 0, 1), Err(zero));
        let negative = ArrivalError::Negative { key: "min_gap_ns", ns: -1 };
        assert_eq!(validated(-1, 1, 1), Err(negative));
        let swapped = validated(2, 1, 1).unwrap_err();
        assert_eq!(swapped.to_string(), "min_gap_ns is 2, which is above max_gap_ns, 1: swap them");
        assert!(matches!(validated(0, 1, NS_PER_S), Err(ArrivalError::TooMany { .. })));
    }

    proptest! {
        #[test]
        fn keeps_the_promises(
            seed: u64, label in ".{0,20}", min in 0i64..1_000_000, more in 1i64..1_000_000,
            duration_ns in 1i64..1_000_000_000,
        ) {
            let process = with(min, min + more, duration_ns);
            assert_keeps_promises(&process, seed, &label, duration_ns);
            for gap in gaps(&times(&process, seed, &label)) {
                prop_assert!(gap >= min as f64 && gap <= (min + more) as f64);
            }
        }
    }
}
