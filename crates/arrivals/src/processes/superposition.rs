use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, Process, check};
use crate::{Arrival, ArrivalError, RandomStream};

/// Several processes at once, merged by time; of simultaneous requests those of the part that is
/// listed first come first. Part i (from 0) draws from the stream whose label is this one's followed by
/// a slash and i ([`RandomStream::part`]), so that the parts are independent of each other.
///
/// With p parts that have bursts, burst b of the q-th of them (from 0) gets the number
///
/// ```text
/// b x p + q
/// ```
///
/// which no other burst has. A single part with bursts keeps its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Superposition {
    /// The parts, at least one.
    pub processes: Vec<Process>,
}

/// A part that has arrivals left, and how its bursts are numbered.
struct Part {
    arrivals: Arrivals,
    /// q of the formula.
    bursty: i64,
}

impl Superposition {
    pub(super) fn validate(&self) -> Result<(), ArrivalError> {
        check::depth(&self.processes)?;
        if self.processes.is_empty() {
            return Err(ArrivalError::Empty { key: "processes" });
        }
        for (index, process) in self.processes.iter().enumerate() {
            let in_part = |source| ArrivalError::Part { index, source: Box::new(source) };
            process.validate().map_err(in_part)?;
        }
        if self.burst_numbers().is_some_and(|numbers| numbers > i64::MAX as u128) {
            return Err(ArrivalError::BurstNumbers);
        }
        check::count(self.expected_arrivals())
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        self.processes.iter().map(Process::expected_arrivals).sum()
    }

    pub(super) fn burst_numbers(&self) -> Option<u128> {
        let numbers = self.processes.iter().filter_map(Process::burst_numbers);
        numbers.clone().max().map(|most| most.saturating_mul(numbers.count() as u128))
    }

    pub(super) fn arrivals(&self, stream: RandomStream) -> Arrivals {
        let mut bursty = 0;
        let mut parts = Vec::with_capacity(self.processes.len());
        for (index, process) in self.processes.iter().enumerate() {
            parts.push(Part { arrivals: process.arrivals(stream.part(index)), bursty });
            bursty += i64::from(process.burst_numbers().is_some());
        }
        Box::new(merge(parts, bursty).fuse())
    }
}

/// The arrivals of all parts by time, then by part; `bursty` of the parts have bursts.
fn merge(mut parts: Vec<Part>, bursty: i64) -> impl Iterator<Item = Arrival> {
    let head = move |part: &mut Part, index: usize| {
        let arrival = part.arrivals.next()?;
        let burst = arrival.burst.map(|burst| burst * bursty + part.bursty);
        // Within one part the order is its own, and a part has one head at a time.
        Some(Reverse((arrival.offset, index, burst)))
    };
    let heads = parts.iter_mut().zip(0..).filter_map(|(part, index)| head(part, index));
    let mut heads: BinaryHeap<_> = heads.collect();
    std::iter::from_fn(move || {
        let Reverse((offset, index, burst)) = heads.pop()?;
        heads.extend(head(&mut parts[index], index));
        Some(Arrival { offset, burst })
    })
}

impl fmt::Display for Superposition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("superposition(")?;
        for (index, process) in self.processes.iter().enumerate() {
            write!(formatter, "{}{process}", if index > 0 { ", " } else { "" })?;
        }
        formatter.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        KS_CRITICAL, arrivals, assert_keeps_promises, assert_labels_are_independent, gaps,
        kolmogorov_smirnov, times,
    };
    use crate::{Burst, MAX_ARRIVALS, NS_PER_S, Poisson, Times};
    use proptest::prelude::*;

    fn of(processes: Vec<Process>) -> Superposition {
        Superposition { processes }
    }

    fn poisson(rate: &str, duration_ns: i64) -> Process {
        Poisson { rate_per_s: rate.parse().unwrap(), duration_ns }.into()
    }

    fn burst(sizes: &[i64], interval_ns: i64, bursts: i64) -> Process {
        Burst::every(interval_ns, sizes.to_vec(), bursts).into()
    }

    fn given(times_ns: &[i64]) -> Process {
        Times { times_ns: times_ns.to_vec() }.into()
    }

    #[test]
    fn parts_draw_from_streams_of_their_own() {
        let process = of(vec![poisson("100", NS_PER_S), poisson("100", NS_PER_S)]);
        let mut expected = times(&poisson("100", NS_PER_S), 7, "mix/0");
        expected.extend(times(&poisson("100", NS_PER_S), 7, "mix/1"));
        expected.sort_unstable();
        assert_eq!(times(&process.into(), 7, "mix"), expected);
    }

    #[test]
    fn equal_parts_are_not_in_lockstep_and_add_up_to_poisson() {
        let process = Process::from(of(vec![poisson("1000", 10 * NS_PER_S); 5]));
        let gaps = gaps(&times(&process, 1, "ks"));
        let statistic = kolmogorov_smirnov(gaps, |x| 1.0 - (-x / 2e5).exp());
        assert!(statistic < KS_CRITICAL, "{statistic}");
        assert_labels_are_independent(&process);
    }

    #[test]
    fn ties_go_by_part_and_one_part_s_bursts_keep_their_numbers() {
        let process = of(vec![given(&[0, 20]), burst(&[2, 1], 10, 3)]).into();
        let found: Vec<_> = arrivals(&process, 0, "").iter().map(|a| (a.offset, a.burst)).collect();
        let burst =
            [(0, Some(0)), (0, Some(0)), (10, Some(1)), (20, None), (20, Some(2)), (20, Some(2))];
        assert_eq!(found, [&[(0, None)], &burst[..]].concat());
    }

    #[test]
    fn bursts_of_several_parts_get_numbers_of_their_own() {
        let inner = of(vec![burst(&[1], 10, 2), burst(&[1], 15, 2)]).into();
        let process = of(vec![burst(&[2], 10, 3), given(&[5]), inner]).into();
        let found: Vec<_> = arrivals(&process, 0, "").iter().map(|a| (a.offset, a.burst)).collect();
        // Of the inner one: burst b of its first part 2b, of its second 2b + 1.
        let expected = [
            (0, Some(0)),
            (0, Some(0)),
            (0, Some(1)),
            (0, Some(3)),
            (5, None),
            (10, Some(2)),
            (10, Some(2)),
            (10, Some(5)),
            (15, Some(7)),
            (20, Some(4)),
            (20, Some(4)),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn bad_values_are_sentences() {
        assert_eq!(of(vec![]).validate(), Err(ArrivalError::Empty { key: "processes" }));
        let bad = of(vec![given(&[1]), of(vec![given(&[2, 1])]).into()]).validate().unwrap_err();
        assert_eq!(
            bad.to_string(),
            "processes[1]: processes[0]: times_ns[1] is 1, which is before times_ns[0], 2: sort the times"
        );
        let many = burst(&[MAX_ARRIVALS as i64 / 2 + 1], 1, 1);
        assert!(matches!(of(vec![many; 2]).validate(), Err(ArrivalError::TooMany { .. })));
    }

    #[test]
    fn burst_numbers_stay_within_64_bits() {
        let deep = (0..15).fold(burst(&[1], 1, 1), |inner, _| {
            of([vec![burst(&[1], 1, 1); 99], vec![inner]].concat()).into()
        });
        assert_eq!(deep.burst_numbers(), Some(100u128.pow(15)));
        let mut innermost = deep.validate().unwrap_err();
        while let ArrivalError::Part { source, .. } = innermost {
            innermost = *source;
        }
        assert_eq!(innermost, ArrivalError::BurstNumbers);
    }

    proptest! {
        #[test]
        fn all_of_all_parts_in_order(
            rates in prop::collection::vec(1u32..300, 1..6), seed: u64, label in ".{0,8}"
        ) {
            let parts: Vec<_> =
                rates.iter().map(|rate| poisson(&rate.to_string(), NS_PER_S)).collect();
            let process = Process::from(of(parts.clone()));
            assert_keeps_promises(&process, seed, &label, NS_PER_S);
            let each = parts.iter().enumerate();
            let each = each.flat_map(|(i, part)| times(part, seed, &format!("{label}/{i}")));
            let mut expected: Vec<i64> = each.collect();
            expected.sort_unstable();
            prop_assert_eq!(times(&process, seed, &label), expected);
        }
    }
}
