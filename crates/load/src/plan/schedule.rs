//! The merged schedule of all streams.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use uncia_arrivals::{Arrivals, RandomStream};

use super::{Pacing, PlannedStream};
use crate::config::Share;

/// A request that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Nanoseconds after the start of the schedule.
    pub at: i64,
    /// Index of its stream.
    pub stream: usize,
    /// Number within its stream, from 0.
    pub number: u64,
    /// Number of its burst within the stream.
    pub burst: Option<i64>,
}

impl Entry {
    /// Which of `targets` replicas it goes to: they take turns, by requests or by bursts.
    pub(crate) fn target(&self, targets: usize, by_burst: bool) -> usize {
        let turn = match self.burst {
            Some(burst) if by_burst => burst.unsigned_abs(),
            _ => self.number,
        };
        (turn % targets as u64) as usize
    }
}

struct Source {
    /// None where answers decide, whose times nobody knows beforehand.
    arrivals: Option<Arrivals>,
    start_ns: i64,
    next_number: u64,
}

/// The requests of all open streams by time, then by stream; computed one at a time.
pub(crate) struct Schedule {
    sources: Vec<Source>,
    /// The next arrival of each stream that has one: time, stream, burst.
    heads: BinaryHeap<Reverse<(i64, usize, Option<i64>)>>,
    share: Share,
    /// How many requests of the whole schedule, all shares, have gone by.
    passed: u64,
}

impl Schedule {
    /// This share of the schedule. Every share goes through the whole: it is the same numbers that
    /// are drawn, whoever sends.
    pub(crate) fn new(seed: u64, streams: &[PlannedStream], share: Share) -> Self {
        let sources = streams.iter().map(|stream| Source {
            arrivals: match &stream.pacing {
                Pacing::Open(process) => {
                    Some(process.arrivals(RandomStream::new(seed, &stream.label)))
                }
                Pacing::Closed(_) | Pacing::After => None,
            },
            start_ns: stream.start_ns,
            next_number: 0,
        });
        let mut schedule =
            Self { sources: sources.collect(), heads: BinaryHeap::new(), share, passed: 0 };
        for stream in 0..schedule.sources.len() {
            schedule.advance(stream);
        }
        schedule
    }

    fn advance(&mut self, stream: usize) {
        let source = &mut self.sources[stream];
        if let Some(arrival) = source.arrivals.as_mut().and_then(Iterator::next) {
            self.heads.push(Reverse((source.start_ns + arrival.offset, stream, arrival.burst)));
        }
    }
}

impl Iterator for Schedule {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            let Reverse((at, stream, burst)) = self.heads.pop()?;
            let source = &mut self.sources[stream];
            let number = source.next_number;
            source.next_number += 1;
            self.advance(stream);
            let place = self.passed;
            self.passed += 1;
            if place % self.share.of == self.share.index {
                return Some(Entry { at, stream, number, burst });
            }
        }
    }
}

/// How much a schedule asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    /// Requests in all, but for those whose times come from answers.
    pub total: u64,
    /// The first and the last send time; for closed loops, the end of their duration.
    pub first_ns: i64,
    pub last_ns: i64,
    /// The most requests at one and the same time.
    pub simultaneous: u64,
    /// The most requests that can be in flight if every answer takes until its timeout.
    pub in_flight: u64,
}

impl Extent {
    /// Goes through the schedule twice, one timeout apart; keeps nothing. Of a chain, all requests
    /// are counted as in flight from its first to that one's timeout: its later ones follow answers.
    pub(crate) fn measure(
        seed: u64,
        streams: &[PlannedStream],
        share: Share,
        timeout_ns: i64,
    ) -> Self {
        let mut extent = Self::default();
        let stages: Vec<u64> = streams
            .iter()
            .map(|stream| stream.stage.as_ref().map_or(1, |stage| stage.stages as u64))
            .collect();
        let mut ended = Schedule::new(seed, streams, share).peekable();
        let (mut at_once, mut open) = (0, 0);
        for entry in Schedule::new(seed, streams, share) {
            at_once = if entry.at == extent.last_ns { at_once + 1 } else { 1 };
            while let Some(old) = ended.next_if(|old| old.at + timeout_ns <= entry.at) {
                open -= stages[old.stream];
            }
            open += stages[entry.stream];
            if extent.total == 0 {
                extent.first_ns = entry.at;
            }
            extent.total += 1;
            extent.last_ns = entry.at;
            extent.simultaneous = extent.simultaneous.max(at_once);
            extent.in_flight = extent.in_flight.max(open);
        }
        let closed =
            streams.iter().zip(stages).filter_map(|(stream, stages)| match &stream.pacing {
                Pacing::Closed(clients) => Some((stream.start_ns, clients, stages)),
                Pacing::Open(_) | Pacing::After => None,
            });
        for (start_ns, clients, stages) in closed {
            extent.simultaneous += u64::from(clients.clients);
            extent.in_flight += u64::from(clients.clients) * stages;
            extent.last_ns = extent.last_ns.max(start_ns.saturating_add(clients.duration_ns));
        }
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Think;
    use proptest::prelude::*;
    use uncia_arrivals::Process;

    fn stream(label: &str, start_ns: i64, arrivals: serde_json::Value) -> PlannedStream {
        let arrivals: Process = serde_json::from_value(arrivals).unwrap();
        arrivals.validate().unwrap();
        PlannedStream {
            function: label.into(),
            label: label.to_owned(),
            pacing: Pacing::Open(arrivals),
            start_ns,
            think: Think::new(0, label, 0, None),
            targets: Vec::new(),
            stage_name: None,
            declared: crate::plan::Declared::default(),
            stage: None,
        }
    }

    fn poisson(label: &str) -> PlannedStream {
        let arrivals = serde_json::json!(
            {"kind": "poisson", "rate_per_s": "1000", "duration_ns": 500_000_000});
        stream(label, 0, arrivals)
    }

    fn times(streams: &[PlannedStream], of: usize) -> Vec<i64> {
        let schedule = Schedule::new(7, streams, Share::default());
        schedule.filter(|entry| entry.stream == of).map(|entry| entry.at).collect()
    }

    #[test]
    fn a_stream_s_times_do_not_depend_on_the_others() {
        let alone = times(&[poisson("a")], 0);
        assert_eq!(alone, times(&[poisson("b"), poisson("a")], 1));
        assert_ne!(alone, times(&[poisson("b"), poisson("a")], 0));
    }

    #[test]
    fn replicas_take_turns_by_requests_or_by_bursts() {
        let targets = |by_burst| {
            let entry = |number| Entry { at: 0, stream: 0, number, burst: Some(number as i64 / 4) };
            [0, 1, 3, 4, 7, 8].map(|number| entry(number).target(2, by_burst))
        };
        assert_eq!(targets(false), [0, 1, 1, 0, 1, 0]);
        assert_eq!(targets(true), [0, 0, 0, 1, 1, 0]);
        // Of requests without bursts there are turns by number alone.
        assert_eq!(Entry { at: 0, stream: 0, number: 3, burst: None }.target(2, true), 1);
    }

    #[test]
    fn extent_counts_what_is_at_once_and_what_can_be_open() {
        let burst = serde_json::json!(
            {"kind": "burst", "sizes": [3, 5], "interval_ns": 100, "bursts": 4});
        let streams = [stream("a", 0, burst.clone()), stream("b", 100, burst)];
        // At 0: 3; 100: 5 + 3; 200: 3 + 5; 300: 5 + 3; 400: 5.
        let extent = Extent::measure(0, &streams, Share::default(), 100);
        assert_eq!(
            extent,
            Extent { total: 32, first_ns: 0, last_ns: 400, simultaneous: 8, in_flight: 8 }
        );
        assert_eq!(Extent::measure(0, &streams, Share::default(), 101).in_flight, 16);
        assert_eq!(Extent::measure(0, &streams, Share::default(), i64::MAX / 2).in_flight, 32);
    }

    proptest! {
        #[test]
        fn merged_is_sorted_and_complete(starts in prop::collection::vec(0i64..300_000_000, 1..6)) {
            let streams: Vec<_> = starts.iter().enumerate().map(|(index, &start)| PlannedStream {
                start_ns: start, ..poisson(&index.to_string())
            }).collect();
            let merged: Vec<Entry> = Schedule::new(1, &streams, Share::default()).collect();
            prop_assert!(merged.is_sorted_by_key(|entry| (entry.at, entry.stream)));
            for (index, stream) in streams.iter().enumerate() {
                let own: Vec<_> = merged.iter().filter(|entry| entry.stream == index).collect();
                let random = RandomStream::new(1, &stream.label);
                let Pacing::Open(process) = &stream.pacing else { unreachable!() };
                let expected: Vec<_> = process.arrivals(random)
                    .map(|arrival| arrival.offset + stream.start_ns).collect();
                prop_assert_eq!(own.iter().map(|e| e.at).collect::<Vec<_>>(), expected);
                prop_assert!(own.iter().zip(0..).all(|(entry, number)| entry.number == number));
            }
        }

        /// Every request is in exactly one share, and the same there as in the whole.
        #[test]
        fn shares_are_a_partition(of in 1u64..6) {
            let streams = [poisson("a"), poisson("b")];
            let mut shared: Vec<Entry> = (0..of)
                .flat_map(|index| Schedule::new(1, &streams, Share { index, of }))
                .collect();
            shared.sort_by_key(|entry| (entry.at, entry.stream, entry.number));
            let whole: Vec<Entry> = Schedule::new(1, &streams, Share::default()).collect();
            prop_assert_eq!(shared, whole);
        }
    }
}
