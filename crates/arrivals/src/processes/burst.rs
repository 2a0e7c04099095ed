use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Arrivals, check};
use crate::gap::Distribution;
use crate::{Arrival, ArrivalError, Gap, MAX_SPAN_NS, RandomStream};

/// Bursts of requests: burst b (from 0) has `sizes[b mod n]` requests (n: the number of sizes), all at
///
/// ```text
/// t_b = b x interval,   b = 0 ... bursts - 1
/// ```
///
/// With `gap` instead of `interval_ns` the time from one burst to the next is random:
///
/// ```text
/// t_0 = 0,   t_b = t_(b-1) + gap_b
/// ```
///
/// with gaps drawn as [`Gap`] says. With a jitter each request of the burst is at a time of its own,
///
/// ```text
/// t_b + floor(u x jitter)
/// ```
///
/// from a uniform number of the stream ([`RandomStream`]), used exactly. Numbers are drawn burst by
/// burst: the gap before it (none before the first), then the jitter of its requests. Requests are
/// sorted by time, then by burst, so that bursts overlap when the jitter is longer than a gap; those
/// that overlap are held in memory. A burst later than [`MAX_SPAN_NS`] ends the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// Requests in a burst; several sizes are taken in turn.
    pub sizes: Vec<i64>,
    /// From one burst to the next; either this or `gap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<i64>,
    /// The random time from one burst to the next; either this or `interval_ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
    /// How many bursts there are, 1 or more.
    pub bursts: i64,
    /// The length of the window after a burst's start over which its requests are spread, in
    /// nanoseconds; 0 sends them at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_ns: i64,
}

fn is_zero(ns: &i64) -> bool {
    *ns == 0
}

impl Burst {
    /// Bursts at a fixed interval, the requests of each at once.
    pub fn every(interval_ns: i64, sizes: Vec<i64>, bursts: i64) -> Self {
        Self { sizes, interval_ns: Some(interval_ns), gap: None, bursts, jitter_ns: 0 }
    }

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
        if self.jitter_ns < 0 {
            return Err(ArrivalError::Negative { key: "jitter_ns", ns: self.jitter_ns });
        }
        let span = match (self.interval_ns, &self.gap) {
            (Some(ns), None) => self.span_of_interval(ns)?,
            (None, Some(gap)) => self.span_of_gap(gap)?,
            _ => return Err(ArrivalError::IntervalOrGap),
        };
        check::span(span.saturating_add(self.jitter_ns.into()))?;
        check::count(self.expected_arrivals())
    }

    fn span_of_interval(&self, ns: i64) -> Result<i128, ArrivalError> {
        if ns < 0 || (self.bursts > 1 && ns == 0) {
            return Err(ArrivalError::Interval { ns });
        }
        Ok(i128::from(ns) * i128::from(self.bursts))
    }

    /// How long it is on average.
    fn span_of_gap(&self, gap: &Gap) -> Result<i128, ArrivalError> {
        let in_gap = |source| ArrivalError::Gap { source: Box::new(source) };
        gap.validate().map_err(in_gap)?;
        if self.bursts > 1 && gap.mean_ns() == 0.0 {
            return Err(ArrivalError::ZeroGap);
        }
        Ok((gap.mean_ns() * self.bursts as f64) as i128)
    }

    pub(super) fn expected_arrivals(&self) -> u128 {
        let round: u128 = self.sizes.iter().map(|&size| size as u128).sum();
        let bursts = self.bursts as u128;
        let sizes = self.sizes.len() as u128;
        let rest = self.sizes.iter().take((bursts % sizes) as usize).map(|&size| size as u128);
        round.saturating_mul(bursts / sizes).saturating_add(rest.sum())
    }

    pub(super) fn arrivals(&self, mut stream: RandomStream) -> Arrivals {
        let mut starts = self.starts();
        if self.jitter_ns > 0 {
            return Box::new(jittered(starts, self.jitter_ns, stream).fuse());
        }
        let bursts = std::iter::from_fn(move || starts.next(&mut stream)).fuse();
        let arrivals = bursts.flat_map(|start| {
            let arrival = Arrival { offset: start.time, burst: Some(start.burst) };
            (0..start.size).map(move |_| arrival)
        });
        Box::new(arrivals)
    }

    fn starts(&self) -> Starts {
        let interval = Gap::Fixed { ns: self.interval_ns.unwrap_or(0) };
        Starts {
            gap: self.gap.as_ref().unwrap_or(&interval).distribution(),
            sizes: self.sizes.clone(),
            bursts: self.bursts,
            burst: 0,
            time: 0,
        }
    }
}

/// When bursts begin.
struct Starts {
    gap: Distribution,
    sizes: Vec<i64>,
    bursts: i64,
    /// The next one, and when the one before it began.
    burst: i64,
    time: i64,
}

/// A burst.
struct Start {
    time: i64,
    burst: i64,
    size: i64,
}

impl Starts {
    fn next(&mut self, stream: &mut RandomStream) -> Option<Start> {
        let burst = self.burst;
        if burst >= self.bursts {
            return None;
        }
        if burst > 0 {
            self.time = self.time.saturating_add(self.gap.draw_ns(stream));
        }
        if self.time > MAX_SPAN_NS {
            return None;
        }
        self.burst += 1;
        let size = self.sizes[(burst as u64 % self.sizes.len() as u64) as usize];
        Some(Start { time: self.time, burst, size })
    }
}

/// The requests of all bursts at times of their own, sorted by time and burst.
fn jittered(
    mut starts: Starts,
    jitter_ns: i64,
    mut stream: RandomStream,
) -> impl Iterator<Item = Arrival> + Send {
    // Requests of the bursts that have begun, and the burst that begins next.
    let mut begun = BinaryHeap::new();
    let mut next = starts.next(&mut stream);
    std::iter::from_fn(move || {
        while let Some(start) = &next {
            if begun.peek().is_some_and(|Reverse((time, _))| *time <= start.time) {
                break;
            }
            for _ in 0..start.size {
                let late = stream.whole_below(jitter_ns as u64, 1) as i64;
                begun.push(Reverse((start.time + late, start.burst)));
            }
            next = starts.next(&mut stream);
        }
        let Reverse((offset, burst)) = begun.pop()?;
        Some(Arrival { offset, burst: Some(burst) })
    })
}

impl fmt::Display for Burst {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "burst({} of {:?} every ", self.bursts, self.sizes)?;
        match &self.gap {
            Some(gap) => gap.fmt(formatter)?,
            None => write!(formatter, "{} ns", self.interval_ns.unwrap_or(0))?,
        }
        match self.jitter_ns {
            0 => formatter.write_str(")"),
            ns => write!(formatter, ", jitter {ns} ns)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        self, KS_CRITICAL, assert_keeps_promises, assert_labels_are_independent, gaps,
        kolmogorov_smirnov,
    };
    use crate::{MAX_ARRIVALS, NS_PER_S, Process};
    use proptest::prelude::*;

    fn burst(sizes: &[i64], interval_ns: i64, bursts: i64) -> Burst {
        Burst::every(interval_ns, sizes.to_vec(), bursts)
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

    fn random(gap: Gap, bursts: i64, jitter_ns: i64) -> Burst {
        Burst { sizes: vec![2, 1], interval_ns: None, gap: Some(gap), bursts, jitter_ns }
    }

    /// Computed by an independent implementation of the derivation and the formulas.
    #[test]
    fn known_answers() {
        let gap = Gap::Exponential { mean_ns: 1_000_000, shift_ns: 500_000 };
        let found = test_support::arrivals(&random(gap, 4, 3_000_000).into(), 7, "hello");
        let found: Vec<_> = found.iter().map(|a| (a.offset, a.burst.unwrap())).collect();
        assert_eq!(
            found,
            [
                (1_403_571, 0),
                (1_507_323, 1),
                (2_534_180, 3),
                (2_728_455, 0),
                (4_090_936, 2),
                (4_551_373, 2)
            ]
        );
    }

    #[test]
    fn random_gaps_have_their_distribution() {
        let starts = |gap| -> Vec<i64> {
            let found = arrivals(&Burst { sizes: vec![1], ..random(gap, 5_000, 0) });
            found.into_iter().map(|(time, _)| time).collect()
        };
        let times = starts(Gap::Exponential { mean_ns: NS_PER_S, shift_ns: NS_PER_S });
        assert_eq!((times[0], times.len()), (0, 5_000));
        let statistic = kolmogorov_smirnov(gaps(&times), |x| 1.0 - (1.0 - x / 1e9).exp());
        assert!(statistic < KS_CRITICAL, "{statistic}");
        let times = starts(Gap::Uniform { min_ns: 0, max_ns: NS_PER_S });
        let statistic = kolmogorov_smirnov(gaps(&times), |x| x / 1e9);
        assert!(statistic < KS_CRITICAL, "{statistic}");
        assert_eq!(starts(Gap::Fixed { ns: 7 })[4_999], 4_999 * 7);
    }

    #[test]
    fn jitter_is_uniform_and_independent() {
        let process = Process::from(Burst { jitter_ns: 1_000_000, ..burst(&[50], NS_PER_S, 40) });
        let places = test_support::times(&process, 1, "jitter");
        let places = places.iter().map(|time| (time % NS_PER_S) as f64 / 1e6).collect();
        let statistic = kolmogorov_smirnov(places, |x| x);
        assert!(statistic < KS_CRITICAL, "{statistic}");
        let alone = Burst { jitter_ns: 1_000_000, ..burst(&[1], 1_000_000, 5_000) };
        assert_labels_are_independent(&alone.into());
    }

    #[test]
    fn a_burst_too_late_to_count_ends_it() {
        let gap = Gap::Lognormal { mean_ns: MAX_SPAN_NS / 10, cv: 100.0 };
        for seed in 0..200 {
            let process = Process::from(random(gap.clone(), 9, 1_000));
            assert_keeps_promises(&process, seed, "late", MAX_SPAN_NS + 1_000);
        }
    }

    #[test]
    fn bad_gaps_and_jitter_are_sentences() {
        let fixed = Gap::Fixed { ns: 5 };
        let both = Burst { interval_ns: Some(5), ..random(fixed.clone(), 2, 0) };
        assert_eq!(both.validate(), Err(ArrivalError::IntervalOrGap));
        let neither = Burst { gap: None, ..random(fixed.clone(), 2, 0) };
        assert_eq!(neither.validate(), Err(ArrivalError::IntervalOrGap));
        let negative = ArrivalError::Negative { key: "jitter_ns", ns: -1 };
        assert_eq!(random(fixed, 2, -1).validate(), Err(negative));
        for zero in [Gap::Fixed { ns: 0 }, Gap::Uniform { min_ns: 0, max_ns: 0 }] {
            assert_eq!(random(zero.clone(), 2, 0).validate(), Err(ArrivalError::ZeroGap));
            assert_eq!(random(zero, 1, 0).validate(), Ok(()));
        }
        let wrong = random(Gap::Fixed { ns: -1 }, 2, 0).validate().unwrap_err();
        assert_eq!(wrong.to_string(), "gap: ns is -1: it must not be negative");
        let long = random(Gap::Gamma { mean_ns: MAX_SPAN_NS / 4, cv: 1.0 }, 5, 0);
        assert_eq!(long.validate(), Err(ArrivalError::TooLong));
        let long = Burst { jitter_ns: MAX_SPAN_NS, ..burst(&[1], 1, 1) };
        assert_eq!(long.validate(), Err(ArrivalError::TooLong));
    }

    proptest! {
        #[test]
        fn jittered_bursts_are_whole_and_sorted(
            sizes in prop::collection::vec(1i64..10, 1..4), interval_ns in 1i64..100,
            bursts in 1i64..30, jitter_ns in 1i64..1_000, seed: u64,
        ) {
            let process = Burst { jitter_ns, ..burst(&sizes, interval_ns, bursts) };
            let end = bursts * interval_ns + jitter_ns;
            assert_keeps_promises(&process.clone().into(), seed, "jitter", end);
            let mut found = vec![0; bursts as usize];
            for (time, burst) in arrivals(&process) {
                let start = burst * interval_ns;
                prop_assert!((start..start + jitter_ns).contains(&time));
                found[burst as usize] += 1;
            }
            let expected = sizes.iter().copied().cycle().take(bursts as usize);
            prop_assert_eq!(found, expected.collect::<Vec<i64>>());
        }

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
