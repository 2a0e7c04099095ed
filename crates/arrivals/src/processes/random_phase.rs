use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, check};
use crate::stream::SIGNIFICAND_BITS;
use crate::{Arrival, ArrivalError, NS_PER_S, RandomStream, Rate};

/// A constant rate that begins at a random point of its first gap, so that functions of one rate are
/// not in lockstep: the k-th request (from 0) at
///
/// ```text
/// t_k = floor((k + u_0) x 10^9 / rate) ns,   for as long as t_k < duration
/// ```
///
/// where u_0 is the first uniform number of the stream ([`RandomStream`]): a whole number of 2^53
/// parts, with which all of it is computed in integers. Within less than one gap there may be no
/// request at all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPhase {
    /// Requests per second.
    pub rate_per_s: Rate,
    /// Nanoseconds after which no request is sent; above zero.
    pub duration_ns: i64,
}

/// A time in ns as whole + remainder / unit, to which the gap is added again and again.
struct Clock {
    time: (u128, u128),
    gap: (u128, u128),
    unit: u128,
}

/// Beyond this a numerator or a gap does not go into the arithmetic of [`Clock`].
const LIMIT: u128 = 1 << (u128::BITS - SIGNIFICAND_BITS - 1);

impl RandomPhase {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::rate_over(self.rate_per_s, self.duration_ns)?;
        match self.gap() {
            Some((whole, _)) if whole < LIMIT && self.rate_per_s.numerator() < LIMIT => Ok(()),
            _ => Err(ArrivalError::RateTooPrecise { text: self.rate_per_s.to_string() }),
        }
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        check::arrivals_at(self.rate_per_s.per_second(), self.duration_ns)
    }

    /// 10^9 / rate as a whole number and what remains over the rate's numerator.
    fn gap(&self) -> Option<(u128, u128)> {
        let scaled = self.rate_per_s.denominator().checked_mul(NS_PER_S as u128)?;
        let numerator = self.rate_per_s.numerator();
        Some((scaled / numerator, scaled % numerator))
    }

    /// The clock at t_0 = u_0 x 10^9 / rate, with u_0 = `phase` / 2^53.
    fn clock(&self, phase: u64) -> Option<Clock> {
        let (whole, rest) = self.gap()?;
        let numerator = self.rate_per_s.numerator();
        let phase = u128::from(phase);
        // In parts of 2^-53 ns, and what remains of one over the numerator.
        let parts = phase * whole + phase * rest / numerator;
        let beyond = phase * rest % numerator;
        let below = parts & ((1 << SIGNIFICAND_BITS) - 1);
        Some(Clock {
            time: (parts >> SIGNIFICAND_BITS, below * numerator + beyond),
            gap: (whole, rest << SIGNIFICAND_BITS),
            unit: numerator << SIGNIFICAND_BITS,
        })
    }

    pub(super) fn arrivals(&self, mut stream: RandomStream) -> Arrivals {
        let end = self.duration_ns as u128;
        let Some(mut clock) = self.clock(stream.uniform_parts()) else {
            return Box::new(std::iter::empty());
        };
        let times = std::iter::from_fn(move || {
            let time = clock.time.0;
            (time < end).then(|| {
                clock.advance();
                Arrival::single(time as i64)
            })
        });
        Box::new(times.fuse())
    }
}

impl Clock {
    fn advance(&mut self) {
        let remainder = self.time.1 + self.gap.1;
        let carry = u128::from(remainder >= self.unit);
        self.time = (self.time.0 + self.gap.0 + carry, remainder - carry * self.unit);
    }
}

impl fmt::Display for RandomPhase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "random_phase({}/s for {} ns)", self.rate_per_s, self.duration_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{self, KS_CRITICAL, assert_keeps_promises, gaps, kolmogorov_smirnov};
    use crate::{MAX_SPAN_NS, Process};
    use proptest::prelude::*;

    fn with(rate: &str, duration_ns: i64) -> Process {
        RandomPhase { rate_per_s: rate.parse().unwrap(), duration_ns }.into()
    }

    fn times(rate: &str, duration_ns: i64, seed: u64) -> Vec<i64> {
        test_support::times(&with(rate, duration_ns), seed, "phase")
    }

    /// Computed with fractions of unlimited integers, from the formula.
    #[test]
    fn known_answers() {
        let found = times("3", NS_PER_S, 7);
        assert_eq!(found, [80_465_311, 413_798_644, 747_131_978]);
        let found = times("2.5/7", 10 * NS_PER_S, 7);
        assert_eq!(found, [675_908_617, 3_475_908_617, 6_275_908_617, 9_075_908_617]);
        let found = times("0.166666666666666667", 86_400 * NS_PER_S, 7);
        assert_eq!((found.len(), found[0]), (14_400, 1_448_375_609));
        assert_eq!(found[14_399], 86_395_448_375_609);
    }

    #[test]
    fn phases_are_uniform_over_the_gap() {
        let first = |seed| times("1000", NS_PER_S, seed)[0] as f64 / 1e6;
        let statistic = kolmogorov_smirnov((0..2_000).map(first).collect(), |x| x);
        assert!(statistic < KS_CRITICAL, "{statistic}");
    }

    #[test]
    fn gaps_are_constant() {
        let times = times("7", 100 * NS_PER_S, 1);
        assert!(gaps(&times).iter().all(|&gap| gap == 142_857_142.0 || gap == 142_857_143.0));
        assert_eq!(times.len(), 700);
    }

    #[test]
    fn functions_are_not_in_lockstep() {
        let first = |label| test_support::times(&with("1", NS_PER_S), 7, label)[0];
        assert!((first("hello-0") - first("hello-1")).abs() > 1_000_000);
    }

    #[test]
    fn bad_values_are_sentences() {
        let rate: Rate = "100".parse().unwrap();
        let with = |rate_per_s, duration_ns| RandomPhase { rate_per_s, duration_ns }.validate();
        assert_eq!(with(rate, 0), Err(ArrivalError::Duration { ns: 0 }));
        assert_eq!(with(rate, i64::MAX), Err(ArrivalError::TooLong));
        let fast = "1000000000000".parse().unwrap();
        assert!(matches!(with(fast, NS_PER_S), Err(ArrivalError::TooMany { .. })));
        let slow = Rate::new(1, 10u128.pow(20)).unwrap();
        assert!(matches!(with(slow, NS_PER_S), Err(ArrivalError::RateTooPrecise { .. })));
        let precise = Rate::new((1 << 74) + 1, 1 << 74).unwrap();
        assert!(matches!(with(precise, NS_PER_S), Err(ArrivalError::RateTooPrecise { .. })));
        let most = Rate::new((1 << 74) - 1, 1 << 74).unwrap();
        assert_eq!(with(most, NS_PER_S), Ok(()));
        assert_eq!(with("1/10000000000".parse().unwrap(), MAX_SPAN_NS), Ok(()));
    }

    proptest! {
        #[test]
        fn times_are_the_formula_s(
            numerator in 1u64..5_000, denominator in 1u64..50, duration_ns in 1i64..5_000_000_000,
            seed: u64,
        ) {
            let rate = format!("{numerator}/{denominator}");
            assert_keeps_promises(&with(&rate, duration_ns), seed, "phase", duration_ns);
            let times = times(&rate, duration_ns, seed);
            let phase = u128::from(RandomStream::new(seed, "phase").uniform_parts());
            let time = |k: u128| {
                ((k << 53) + phase) * u128::from(denominator) * 1_000_000_000
                    / (u128::from(numerator) << 53)
            };
            for (k, &found) in times.iter().enumerate() {
                prop_assert_eq!(found as u128, time(k as u128));
            }
            prop_assert!(time(times.len() as u128) >= duration_ns as u128);
        }
    }
}
