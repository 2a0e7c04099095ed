use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, check};
use crate::{Arrival, ArrivalError, RandomStream};

/// Given times, as they are: the k-th request at `times_ns[k]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// From the start of the process, in order; equal ones are simultaneous requests.
    pub times_ns: Vec<i64>,
}

impl Times {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::list("times_ns", &self.times_ns)?;
        let pairs = self.times_ns.windows(2).zip(1..);
        if let Some((pair, index)) = pairs.into_iter().find(|(pair, _)| pair[0] > pair[1]) {
            return Err(ArrivalError::UnsortedTimes { index, ns: pair[1], before: pair[0] });
        }
        check::span(self.times_ns.last().copied().unwrap_or(0).into())?;
        check::count(self.expected_arrivals())
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        self.times_ns.len() as u128
    }

    pub(super) fn arrivals(&self, _: RandomStream) -> Arrivals {
        Box::new(self.times_ns.clone().into_iter().map(Arrival::single))
    }
}

impl fmt::Display for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "times({} given)", self.times_ns.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{assert_keeps_promises, times};
    use crate::{MAX_SPAN_NS, Process};
    use proptest::prelude::*;

    fn validated(times_ns: &[i64]) -> Result<(), ArrivalError> {
        Times { times_ns: times_ns.to_vec() }.validate()
    }

    #[test]
    fn bad_values_are_sentences() {
        assert_eq!(validated(&[]), Err(ArrivalError::Empty { key: "times_ns" }));
        let negative = ArrivalError::NegativeEntry { key: "times_ns", index: 1, value: -1 };
        assert_eq!(validated(&[0, -1]), Err(negative));
        let unsorted = ArrivalError::UnsortedTimes { index: 2, ns: 4, before: 5 };
        assert_eq!(
            unsorted.to_string(),
            "times_ns[2] is 4, which is before times_ns[1], 5: sort the times"
        );
        assert_eq!(validated(&[5, 5, 4]), Err(unsorted));
        assert_eq!(validated(&[0, MAX_SPAN_NS + 1]), Err(ArrivalError::TooLong));
        assert_eq!(validated(&[0, 0, MAX_SPAN_NS]), Ok(()));
    }

    proptest! {
        #[test]
        fn given_times_come_out(mut given in prop::collection::vec(0i64..1_000, 1..50), seed: u64) {
            given.sort_unstable();
            let process = Process::from(Times { times_ns: given.clone() });
            prop_assert_eq!(times(&process, seed, "a"), given);
            assert_keeps_promises(&process, seed, "a", 1_000);
        }
    }
}
