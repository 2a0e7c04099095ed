use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, check};
use crate::{Arrival, ArrivalError, RandomStream};

/// Given gaps, the first from the start of the process:
///
/// ```text
/// t_k = gaps_ns[0] + ... + gaps_ns[k]
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gaps {
    /// Zeros are simultaneous requests.
    pub gaps_ns: Vec<i64>,
}

impl Gaps {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::list("gaps_ns", &self.gaps_ns)?;
        check::span(self.gaps_ns.iter().map(|&gap| i128::from(gap)).sum())?;
        check::count(self.expected_arrivals())
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        self.gaps_ns.len() as u128
    }

    pub(super) fn arrivals(&self, _: RandomStream) -> Arrivals {
        let times = self.gaps_ns.clone().into_iter().scan(0, |time, gap| {
            *time += gap;
            Some(Arrival::single(*time))
        });
        Box::new(times.fuse())
    }
}

impl fmt::Display for Gaps {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "gaps({} given)", self.gaps_ns.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{assert_keeps_promises, times};
    use crate::{MAX_SPAN_NS, Process};
    use proptest::prelude::*;

    fn validated(gaps_ns: &[i64]) -> Result<(), ArrivalError> {
        Gaps { gaps_ns: gaps_ns.to_vec() }.validate()
    }

    #[test]
    fn times_are_sums() {
        let process = Process::from(Gaps { gaps_ns: vec![5, 0, 10, 1] });
        assert_eq!(times(&process, 0, ""), [5, 5, 15, 16]);
    }

    #[test]
    fn bad_values_are_sentences() {
        assert_eq!(validated(&[]), Err(ArrivalError::Empty { key: "gaps_ns" }));
        let negative = ArrivalError::NegativeEntry { key: "gaps_ns", index: 0, value: -3 };
        assert_eq!(negative.to_string(), "gaps_ns[0] is -3: it must not be negative");
        assert_eq!(validated(&[-3]), Err(negative));
        assert_eq!(validated(&[i64::MAX; 4]), Err(ArrivalError::TooLong));
        assert_eq!(validated(&[0, MAX_SPAN_NS]), Ok(()));
    }

    proptest! {
        #[test]
        fn given_gaps_are_between_the_times(given in prop::collection::vec(0i64..1_000, 1..50), seed: u64) {
            let process = Process::from(Gaps { gaps_ns: given.clone() });
            let times = times(&process, seed, "a");
            let between = times.iter().zip([0].iter().chain(&times)).map(|(time, before)| time - before);
            prop_assert!(between.eq(given.iter().copied()));
            assert_keeps_promises(&process, seed, "a", 50_000);
        }
    }
}
