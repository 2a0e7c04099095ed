//! Totals of each function since the start.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use uncia_record::Invocation;

use super::Histogram;

/// Functions with totals of their own. Those that come later share the totals of [`OTHERS`].
const MAX_FUNCTIONS: usize = 100;
/// Stands for functions without totals of their own: no name of a function.
const OTHERS: &str = "(other)";

/// The totals of all functions that ran.
#[derive(Debug, Default)]
pub(crate) struct Functions(HashMap<Arc<str>, Totals>);

impl Functions {
    pub(crate) fn record(&mut self, row: &Invocation) {
        let is_new = !self.0.contains_key(&row.function);
        let name = if is_new && self.0.len() >= MAX_FUNCTIONS {
            Arc::from(OTHERS)
        } else {
            row.function.clone()
        };
        self.0.entry(name).or_default().record(row);
    }

    /// What a function comes to, if it ran and has totals of its own.
    pub(crate) fn get(&self, name: &str) -> Option<&Totals> {
        self.0.get(name)
    }

    /// What a function comes to, which is nothing if it has not run; None if that is not known, since it
    /// shares the totals of others.
    pub(crate) fn known(&self, name: &str) -> Option<&Totals> {
        static NOTHING: LazyLock<Totals> = LazyLock::new(Totals::default);
        self.get(name).or_else(|| (!self.0.contains_key(OTHERS)).then(|| &*NOTHING))
    }

    /// All of them, by name.
    pub(crate) fn by_name(&self) -> Vec<(&str, &Totals)> {
        let mut all: Vec<_> = self.0.iter().map(|(name, totals)| (&**name, totals)).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }
}

/// The sum of what was measured, and of how many invocations that was.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sum {
    pub total: u128,
    pub count: u64,
}

impl Sum {
    fn add(&mut self, value: Option<i64>) {
        if let Some(value) = value.and_then(|value| u128::try_from(value).ok()) {
            self.total += value;
            self.count += 1;
        }
    }

    /// The total, if anything was measured.
    pub(crate) fn known(&self) -> Option<u128> {
        (self.count > 0).then_some(self.total)
    }
}

/// How many invocations ended in an outcome after a kind of start.
#[derive(Debug)]
pub(crate) struct Count {
    pub outcome: Arc<str>,
    pub start: Option<Arc<str>>,
    pub invocations: u64,
}

/// What the invocations of a function come to.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    /// As many as there are outcomes and starts, which are the platform's words.
    pub counts: Vec<Count>,
    pub execution: Histogram,
    pub queued: Histogram,
    pub initialization: Histogram,
    /// ns.
    pub cpu_user: Sum,
    /// ns.
    pub cpu_system: Sum,
    /// ns.
    pub throttled: Sum,
    /// Average memory x execution, in bytes x ns.
    pub memory: Sum,
    /// The most that one used, in bytes.
    pub memory_peak: Option<i64>,
    pub request_bytes: Sum,
    pub response_bytes: Sum,
}

impl Totals {
    fn record(&mut self, row: &Invocation) {
        self.count(row);
        let durations = [
            (&mut self.execution, row.execution),
            (&mut self.queued, row.queued),
            (&mut self.initialization, row.initialization),
        ];
        for (histogram, ns) in durations {
            if let Some(ns) = ns {
                histogram.add(ns);
            }
        }
        self.cpu_user.add(row.cpu_user);
        self.cpu_system.add(row.cpu_system);
        self.throttled.add(row.throttled_time);
        self.request_bytes.add(row.request_bytes);
        self.response_bytes.add(row.response_bytes);
        if let (Some(bytes), Some(ns)) = (row.memory_avg, row.execution) {
            self.memory.total += u128::try_from(i128::from(bytes) * i128::from(ns)).unwrap_or(0);
            self.memory.count += 1;
        }
        self.memory_peak = self.memory_peak.max(row.memory_peak);
    }

    fn count(&mut self, row: &Invocation) {
        let is_same = |count: &&mut Count| {
            count.outcome == row.outcome && count.start.as_deref() == row.start.as_deref()
        };
        if let Some(count) = self.counts.iter_mut().find(is_same) {
            count.invocations += 1;
            return;
        }
        let (outcome, start) = (row.outcome.clone(), row.start.clone());
        self.counts.push(Count { outcome, start, invocations: 1 });
    }

    /// How many invocations there were.
    pub(crate) fn invocations(&self) -> u64 {
        self.counts.iter().map(|count| count.invocations).sum()
    }

    /// How many of them did not end well.
    pub(crate) fn failures(&self) -> u64 {
        let failed = self.counts.iter().filter(|count| &*count.outcome != "ok");
        failed.map(|count| count.invocations).sum()
    }

    /// How many of them waited for the start of an instance.
    pub(crate) fn starts(&self) -> u64 {
        self.initialization.count()
    }

    /// CPU time in ns, if any was measured.
    pub(crate) fn cpu_ns(&self) -> Option<u128> {
        match (self.cpu_user.known(), self.cpu_system.known()) {
            (None, None) => None,
            (user, system) => Some(user.unwrap_or(0) + system.unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str) -> Invocation {
        Invocation {
            function: Arc::from(name),
            outcome: Arc::from("ok"),
            start: Some(Arc::from("warm")),
            execution: Some(2_000_000),
            ..Invocation::default()
        }
    }

    #[test]
    fn functions_beyond_the_bound_share_their_totals() {
        let mut functions = Functions::default();
        for number in 0..MAX_FUNCTIONS + 5 {
            functions.record(&row(&format!("f{number}")));
        }
        functions.record(&row("f0"));
        assert!(functions.known("f0").is_some());
        assert!(functions.known("f102").is_none(), "it is among the others: that is not 0");
        assert_eq!(Functions::default().known("f0").map(Totals::invocations), Some(0));
        assert_eq!(functions.by_name().len(), MAX_FUNCTIONS + 1);
        assert_eq!(functions.get(OTHERS).unwrap().invocations(), 5);
        assert_eq!(functions.get("f0").unwrap().invocations(), 2);
    }

    #[test]
    fn what_was_not_measured_is_not_zero() {
        let mut functions = Functions::default();
        functions.record(&row("f"));
        let totals = functions.get("f").unwrap();
        assert_eq!(
            (totals.cpu_ns(), totals.memory.known(), totals.memory_peak),
            (None, None, None)
        );
        let measured = Invocation {
            cpu_system: Some(3),
            memory_avg: Some(10),
            memory_peak: Some(20),
            outcome: Arc::from("timeout"),
            start: None,
            ..row("f")
        };
        functions.record(&measured);
        let totals = functions.get("f").unwrap();
        assert_eq!((totals.invocations(), totals.failures(), totals.starts()), (2, 1, 0));
        assert_eq!(totals.cpu_ns(), Some(3));
        assert_eq!(totals.memory.known(), Some(20_000_000));
        assert_eq!((totals.memory.count, totals.memory_peak), (1, Some(20)));
    }
}
