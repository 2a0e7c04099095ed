use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, Process, check};
use crate::{ArrivalError, RandomStream};

/// Another process, of which only the requests in given windows [from, to) are sent. The process runs
/// on outside of them (the times within do not depend on the windows); what falls there is dropped.
/// The start is the process's, not the first window's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Windows {
    /// The process that goes on outside of the windows too.
    pub process: Box<Process>,
    /// From and to, in order; one may begin where the one before it ends.
    pub windows_ns: Vec<[i64; 2]>,
}

impl Windows {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::depth(std::slice::from_ref(&*self.process))?;
        if self.windows_ns.is_empty() {
            return Err(ArrivalError::Empty { key: "windows_ns" });
        }
        let mut end = 0;
        for (index, &[from, to]) in self.windows_ns.iter().enumerate() {
            if from < 0 {
                let key = "windows_ns";
                return Err(ArrivalError::NegativeEntry { key, index, value: from });
            }
            if to <= from {
                return Err(ArrivalError::EmptyWindow { index, from, to });
            }
            if from < end {
                return Err(ArrivalError::WindowOrder { index, from, end });
            }
            end = to;
        }
        check::span(end.into())?;
        self.process.validate()
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        self.process.expected_arrivals()
    }

    pub(super) fn arrivals(&self, stream: RandomStream) -> Arrivals {
        let mut windows = self.windows_ns.clone().into_iter().peekable();
        let mut process = self.process.arrivals(stream);
        let times = std::iter::from_fn(move || {
            loop {
                // After the last window nothing more is drawn.
                windows.peek()?;
                let arrival = process.next()?;
                while windows.next_if(|[_, to]| *to <= arrival.offset).is_some() {}
                if arrival.offset >= windows.peek()?[0] {
                    return Some(arrival);
                }
            }
        });
        Box::new(times.fuse())
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} in {} windows", self.process, self.windows_ns.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{arrivals, assert_keeps_promises, times};
    use crate::{Burst, Constant, MAX_DEPTH, MAX_SPAN_NS, NS_PER_S, Poisson, Times};
    use proptest::prelude::*;

    fn with(process: impl Into<Process>, windows_ns: &[[i64; 2]]) -> Windows {
        Windows { process: Box::new(process.into()), windows_ns: windows_ns.to_vec() }
    }

    fn one_per_second(seconds: i64) -> Constant {
        Constant { rate_per_s: "1".parse().unwrap(), duration_ns: seconds * NS_PER_S }
    }

    #[test]
    fn windows_are_half_open_and_drop_the_rest() {
        let given = Times { times_ns: vec![0, 9, 10, 10, 19, 20, 25, 30, 40] };
        let process = with(given, &[[10, 20], [25, 26], [26, 31]]).into();
        assert_eq!(times(&process, 0, ""), [10, 10, 19, 25, 30]);
    }

    #[test]
    fn nothing_is_drawn_after_the_last_window() {
        let endless = Constant { rate_per_s: "1".parse().unwrap(), duration_ns: NS_PER_S << 29 };
        let process = with(endless, &[[0, 1], [2 * NS_PER_S, 3 * NS_PER_S]]).into();
        assert_eq!(times(&process, 0, ""), [0, 2 * NS_PER_S]);
    }

    #[test]
    fn bursts_keep_their_numbers() {
        let burst = Burst::every(10, vec![1], 5);
        let numbers = arrivals(&with(burst, &[[15, 35]]).into(), 0, "");
        assert_eq!(numbers.iter().map(|a| a.burst).collect::<Vec<_>>(), [Some(2), Some(3)]);
    }

    #[test]
    fn bad_values_are_sentences() {
        let validated = |windows: &[[i64; 2]]| with(one_per_second(9), windows).validate();
        assert_eq!(validated(&[]), Err(ArrivalError::Empty { key: "windows_ns" }));
        let empty = ArrivalError::EmptyWindow { index: 1, from: 5, to: 5 };
        assert_eq!(validated(&[[0, 1], [5, 5]]), Err(empty));
        let order = ArrivalError::WindowOrder { index: 1, from: 5, end: 9 };
        assert_eq!(validated(&[[0, 9], [5, 12]]), Err(order));
        let negative = ArrivalError::NegativeEntry { key: "windows_ns", index: 0, value: -1 };
        assert_eq!(validated(&[[-1, 12]]), Err(negative));
        assert_eq!(validated(&[[0, MAX_SPAN_NS + 1]]), Err(ArrivalError::TooLong));
        let inner = with(one_per_second(0), &[[0, 1]]).validate();
        assert_eq!(inner, Err(ArrivalError::Duration { ns: 0 }));
    }

    #[test]
    fn nesting_has_a_bound() {
        let nested = |levels| {
            let process = Process::from(one_per_second(9));
            (1..levels).fold(process, |inner, _| with(inner, &[[0, 5 * NS_PER_S]]).into())
        };
        assert_eq!(nested(MAX_DEPTH).validate(), Ok(()));
        assert_eq!(times(&nested(MAX_DEPTH), 0, "").len(), 5);
        assert_eq!(nested(MAX_DEPTH + 1).validate(), Err(ArrivalError::TooDeep));
    }

    proptest! {
        #[test]
        fn exactly_what_is_inside_is_kept(
            edges in prop::collection::btree_set(0i64..2_000_000_000, 2..10), seed: u64,
        ) {
            let edges: Vec<i64> = edges.into_iter().collect();
            let windows: Vec<[i64; 2]> =
                edges.chunks_exact(2).map(|edge| [edge[0], edge[1]]).collect();
            let all = Poisson { rate_per_s: "200".parse().unwrap(), duration_ns: NS_PER_S };
            let process = Process::from(with(all.clone(), &windows));
            let inside = |time: &i64| windows.iter().any(|[from, to]| (from..to).contains(&time));
            let expected: Vec<i64> = times(&all.into(), seed, "w").into_iter().filter(inside).collect();
            prop_assert_eq!(times(&process, seed, "w"), expected);
            assert_keeps_promises(&process, seed, "w", NS_PER_S);
        }
    }
}
