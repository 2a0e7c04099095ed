use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, check};
use crate::{Arrival, ArrivalError, MAX_SPAN_NS, RandomStream};

/// Bursts of simultaneous requests: burst b (from 0) has `sizes[b mod n]` requests (n: the number of
/// sizes), all at
///
/// ```text
/// t_b = b x interval,   b = 0 ... bursts - 1
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Requests in a burst; several sizes are taken in turn.
    pub sizes: Vec<i64>,
    pub interval_ns: i64,
    pub bursts: i64,
}

impl Burst {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        if self.sizes.is_empty() {
            return Err(ArrivalError::NoSizes);
        }
        if let Some((index, &size)) = self.sizes.iter().enumerate().find(|(_, size)| **size < 1) {
            return Err(ArrivalError::Size { index, size });
        }
        if self.bursts < 1 {
            return Err(ArrivalError::Bursts { bursts: self.bursts });
        }
        if self.interval_ns < 0 || (self.bursts > 1 && self.interval_ns == 0) {
            return Err(ArrivalError::Interval { ns: self.interval_ns });
        }
        match self.interval_ns.checked_mul(self.bursts) {
            Some(span) if span <= MAX_SPAN_NS => {}
            _ => return Err(ArrivalError::TooLong),
        }
        check::count(self.expected_arrivals())
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        let round: u128 = self.sizes.iter().map(|&size| size as u128).sum();
        let bursts = self.bursts as u128;
        let sizes = self.sizes.len() as u128;
        let rest = self.sizes.iter().take((bursts % sizes) as usize).map(|&size| size as u128);
        round.saturating_mul(bursts / sizes).saturating_add(rest.sum())
    }

    pub(super) fn arrivals(&self, _: RandomStream) -> Arrivals {
        let process = self.clone();
        let bursts = (0..process.bursts).zip(0usize..).flat_map(move |(burst, index)| {
            let size = process.sizes[index % process.sizes.len()];
            let arrival = Arrival { offset: burst * process.interval_ns, burst: Some(burst) };
            (0..size).map(move |_| arrival)
        });
        Box::new(bursts)
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "burst({} of {:?} every {} ns)",
            self.bursts, self.sizes, self.interval_ns
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_ARRIVALS;
    use proptest::prelude::*;

    fn burst(sizes: &[i64], interval_ns: i64, bursts: i64) -> Burst {
        Burst { sizes: sizes.to_vec(), interval_ns, bursts }
    }

    fn arrivals(process: &Burst) -> Vec<(i64, i64)> {
        process.validate().unwrap();
        let arrivals = process.arrivals(RandomStream::new(0, ""));
        arrivals.map(|arrival| (arrival.offset, arrival.burst.unwrap())).collect()
    }

    #[test]
    fn sizes_are_taken_in_turn() {
        let expected = [(0, 0), (10, 1), (10, 1), (10, 1), (20, 2), (30, 3), (30, 3), (30, 3)];
        assert_eq!(arrivals(&burst(&[1, 3], 10, 4)), expected);
        assert_eq!(arrivals(&burst(&[2], 0, 1)), [(0, 0), (0, 0)]);
    }

    #[test]
    fn bad_values_are_sentences() {
        assert_eq!(burst(&[], 1, 1).validate(), Err(ArrivalError::NoSizes));
        let zero = ArrivalError::Size { index: 1, size: 0 };
        assert_eq!(burst(&[5, 0], 1, 1).validate(), Err(zero));
        assert_eq!(burst(&[1], 1, 0).validate(), Err(ArrivalError::Bursts { bursts: 0 }));
        assert_eq!(burst(&[1], 0, 2).validate(), Err(ArrivalError::Interval { ns: 0 }));
        assert_eq!(burst(&[1], -1, 1).validate(), Err(ArrivalError::Interval { ns: -1 }));
        assert_eq!(burst(&[1], i64::MAX, 2).validate(), Err(ArrivalError::TooLong));
        let many = burst(&[MAX_ARRIVALS as i64, 1], 1, 2).validate();
        assert!(matches!(many, Err(ArrivalError::TooMany { count }) if count == 1_000_000_001));
        assert!(burst(&[i64::MAX, i64::MAX], 1, 1_000).validate().is_err());
    }

    proptest! {
        #[test]
        fn every_burst_is_whole_and_on_its_time(
            sizes in prop::collection::vec(1i64..20, 1..5), interval_ns in 1i64..1_000_000, bursts in 1i64..30
        ) {
            let found = arrivals(&burst(&sizes, interval_ns, bursts));
            let mut expected = Vec::new();
            for b in 0..bursts {
                for _ in 0..sizes[b as usize % sizes.len()] {
                    expected.push((b * interval_ns, b));
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
