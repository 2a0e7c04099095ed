//! The invocations of a trace, in the order of their times.

use uncia_arrivals::{Arrivals, Counts, Process, RandomStream};

use crate::phases::{self, Phase};
use crate::{NS_PER_MIN, Trace};

/// An invocation.
#[derive(Debug, Clone, Copy)]
pub struct Invocation<'a> {
    /// Its number, from 0.
    pub number: u64,
    /// The index of its function.
    pub function: usize,
    /// When it comes, in ns from the start of the trace.
    pub scheduled: i64,
    /// What it does.
    pub phases: &'a [Phase],
}

impl Invocation<'_> {
    /// How long it takes on an idle machine with enough CPUs, in ns.
    pub fn execution(&self) -> i64 {
        self.phases.iter().map(|phase| phase.duration).sum()
    }

    /// CPU time of all its threads, in ns.
    pub fn cpu_time(&self) -> i64 {
        self.phases.iter().map(|phase| phase.duration.saturating_mul(phase.threads)).sum()
    }

    /// CPU time that it uses of CPUs beyond the first `reserved` micro-vCPU, in ns, rounded down.
    pub fn cpu_time_above(&self, reserved: u64) -> i64 {
        let above = self.phases.iter().map(|phase| {
            let wanted = i128::from(phase.threads) * 1_000_000 - i128::from(reserved);
            i128::from(phase.duration) * wanted.max(0)
        });
        i64::try_from(above.sum::<i128>() / 1_000_000).unwrap_or(i64::MAX)
    }

    /// Memory held, averaged over its time, in bytes, rounded down.
    pub fn memory_avg(&self) -> i64 {
        let held = self.phases.iter().map(|it| i128::from(it.duration) * i128::from(it.memory));
        (held.sum::<i128>() / i128::from(self.execution().max(1))) as i64
    }

    /// Most memory held, in bytes.
    pub fn memory_peak(&self) -> i64 {
        self.phases.iter().map(|phase| phase.memory).max().unwrap_or(0)
    }
}

/// Invocations one after the other. Holds a stream for each function, and the times of a minute.
pub struct Invocations<'a> {
    trace: &'a Trace,
    streams: Vec<Option<Streams>>,
    minute: usize,
    /// What is left of the minute before `minute`: time and function, the last first.
    waiting: Vec<(i64, usize)>,
    phases: Vec<Phase>,
    number: u64,
}

/// What is drawn for a function that is invoked.
struct Streams {
    arrivals: Arrivals,
    phases: RandomStream,
}

impl<'a> Invocations<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        let streams = trace.functions.iter().map(|function| {
            (function.invocations() > 0).then(|| {
                let stream =
                    |of: &str| RandomStream::new(trace.seed, &format!("bb/{of}/{}", function.name));
                let counts = Process::from(Counts {
                    counts: function.counts.iter().map(|count| i64::from(*count)).collect(),
                    bucket_ns: NS_PER_MIN,
                    placement: trace.placement,
                    phase: true,
                });
                Streams { arrivals: counts.arrivals(stream("arrivals")), phases: stream("phases") }
            })
        });
        Self {
            trace,
            streams: streams.collect(),
            minute: 0,
            waiting: Vec::new(),
            phases: Vec::new(),
            number: 0,
        }
    }

    /// The next invocation; its phases are valid until the one after it is asked for.
    pub fn advance(&mut self) -> Option<Invocation<'_>> {
        while self.waiting.is_empty() {
            if !self.next_minute() {
                return None;
            }
        }
        let (scheduled, function) = self.waiting.pop()?;
        let streams = self.streams[function].as_mut()?;
        phases::draw(&self.trace.functions[function], &mut streams.phases, &mut self.phases);
        self.number += 1;
        Some(Invocation { number: self.number - 1, function, scheduled, phases: &self.phases })
    }

    /// Fetches the times of the next minute; false: there is none.
    fn next_minute(&mut self) -> bool {
        let mut any = false;
        for (index, function) in self.trace.functions.iter().enumerate() {
            let Some(count) = function.counts.get(self.minute) else { continue };
            any = true;
            let Some(streams) = &mut self.streams[index] else { continue };
            let times = streams.arrivals.by_ref().take(*count as usize);
            self.waiting.extend(times.map(|arrival| (arrival.offset, index)));
        }
        self.minute += 1;
        self.waiting.sort_unstable_by(|a, b| b.cmp(a));
        any
    }
}
