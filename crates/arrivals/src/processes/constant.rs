use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, check};
use crate::{Arrival, ArrivalError, NS_PER_S, RandomStream, Rate};

/// A constant rate: the k-th request (from 0) at
///
/// ```text
/// t_k = floor(k x 10^9 / rate) ns,   for as long as t_k < duration
/// ```
///
/// computed in integers from the decimal text of the rate, so that the last request of a long run
/// is as exact as the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Requests per second.
    pub rate_per_s: Rate,
    /// Nanoseconds after which no request is sent; above zero.
    pub duration_ns: i64,
}

impl Constant {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::rate_over(self.rate_per_s, self.duration_ns)?;
        let last = self.expected_arrivals();
        let too_precise = || ArrivalError::RateTooPrecise { text: self.rate_per_s.to_string() };
        // One more than the double says, in case it was rounded down.
        self.scaled(last.saturating_add(1)).map(|_| ()).ok_or_else(too_precise)
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        check::arrivals_at(self.rate_per_s.per_second(), self.duration_ns)
    }

    fn scaled(&self, k: u128) -> Option<u128> {
        k.checked_mul(NS_PER_S as u128)?.checked_mul(self.rate_per_s.denominator())
    }

    pub(super) fn arrivals(&self, _: RandomStream) -> Arrivals {
        let process = self.clone();
        let times = (0..).map_while(move |k| {
            let offset = i64::try_from(process.scaled(k)? / process.rate_per_s.numerator()).ok()?;
            (offset < process.duration_ns).then(|| Arrival::single(offset))
        });
        Box::new(times)
    }
}

impl fmt::Display for Constant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "constant({}/s for {} ns)", self.rate_per_s, self.duration_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(rate: &str, duration_ns: i64) -> Vec<i64> {
        let process = Constant { rate_per_s: rate.parse().unwrap(), duration_ns };
        process.validate().unwrap();
        process.arrivals(RandomStream::new(0, "")).map(|arrival| arrival.offset).collect()
    }

    #[test]
    fn times_are_the_formula_s() {
        assert_eq!(times("4", NS_PER_S), [0, 250_000_000, 500_000_000, 750_000_000]);
        assert_eq!(times("3", NS_PER_S), [0, 333_333_333, 666_666_666]);
        assert_eq!(times("0.5", 4 * NS_PER_S), [0, 2 * NS_PER_S]);
        assert_eq!(times("1/3", 7 * NS_PER_S), [0, 3 * NS_PER_S, 6 * NS_PER_S]);
        assert_eq!(times("1", 1), [0]);
        // 2.5/s: request 5 falls exactly on the end and is not of it.
        assert_eq!(times("2.5", 2 * NS_PER_S).len(), 5);
    }

    #[test]
    fn nothing_drifts_over_ten_million_requests() {
        let process =
            Constant { rate_per_s: "3".parse().unwrap(), duration_ns: 3_333_334 * NS_PER_S };
        let last = process.arrivals(RandomStream::new(0, "")).nth(10_000_000).unwrap();
        assert_eq!(last.offset, 3_333_333_333_333_333);
    }

    #[test]
    fn bad_values_are_sentences() {
        let rate: Rate = "100".parse().unwrap();
        let with = |rate_per_s, duration_ns| Constant { rate_per_s, duration_ns }.validate();
        assert_eq!(with(rate, 0), Err(ArrivalError::Duration { ns: 0 }));
        assert_eq!(with(rate, -5), Err(ArrivalError::Duration { ns: -5 }));
        assert_eq!(with(rate, i64::MAX), Err(ArrivalError::TooLong));
        let fast = "1000000000000".parse().unwrap();
        assert!(matches!(with(fast, NS_PER_S), Err(ArrivalError::TooMany { .. })));
        let precise =
            "100000000000000000000000000000000000001/100000000000000000000000000000000000000";
        let precise = precise.parse().unwrap();
        assert!(matches!(with(precise, NS_PER_S), Err(ArrivalError::RateTooPrecise { .. })));
    }

    proptest! {
        #[test]
        fn as_many_as_the_rate_says_sorted_and_within(
            numerator in 1u128..5_000, denominator in 1u128..50, duration_ns in 1i64..5_000_000_000
        ) {
            let rate = Rate::new(numerator, denominator).unwrap();
            let times = times(&rate.to_string(), duration_ns);
            let second = NS_PER_S as u128 * rate.denominator();
            // t_k < duration  <=>  k x 10^9 x denominator < duration x numerator
            let expected = (duration_ns as u128 * rate.numerator()).div_ceil(second);
            prop_assert_eq!(times.len() as u128, expected);
            prop_assert!(times.is_sorted());
            prop_assert!(times.iter().all(|&time| (0..duration_ns).contains(&time)));
        }
    }
}
