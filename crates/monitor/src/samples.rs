//! What a monitor has read at a moment, and differences between moments.

use std::collections::HashMap;

use uncia_record::Text;

/// One number that was read.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub counter: Text,
    pub group: Option<Text>,
    pub cpu: Option<i64>,
    /// ns in which it grew by the value; `None`: it is a level.
    pub interval: Option<i64>,
    pub value: f64,
    /// When it was read, in ns of the monotonic clock, if not when the others were.
    pub at: Option<i64>,
}

/// What one monitor reads at one moment.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// The moment, in ns of the monotonic clock.
    pub now: i64,
    /// When it was last read, if it was.
    pub before: Option<i64>,
    pub rows: Vec<Sample>,
    /// What a reader should know, a sentence each.
    pub warnings: Vec<String>,
    /// Samples that were lost within the monitor.
    pub lost: u64,
    /// CPU time in ns that programs of the monitor's used since the last sample.
    pub programs_cpu: i64,
}

impl Samples {
    /// Adds a level, such as memory in use.
    pub(crate) fn level(&mut self, group: Option<&Text>, counter: &str, value: Option<f64>) {
        self.add(group, counter, None, value);
    }

    /// Adds what a counter grew by in an interval.
    pub(crate) fn growth(&mut self, group: Option<&Text>, counter: &str, grown: Option<Grown>) {
        self.add(group, counter, grown.map(|it| it.interval), grown.map(|it| it.value));
    }

    fn add(
        &mut self,
        group: Option<&Text>,
        counter: &str,
        interval: Option<i64>,
        value: Option<f64>,
    ) {
        let Some(value) = value else { return };
        let group = group.cloned();
        let counter = counter.into();
        self.rows.push(Sample { counter, group, cpu: None, interval, value, at: None });
    }
}

/// By how much a counter grew, and in which time in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grown {
    pub value: f64,
    pub interval: i64,
}

/// Counters as they were read last.
#[derive(Debug, Default)]
pub(crate) struct Counters(HashMap<&'static str, (i64, i64)>);

impl Counters {
    /// Counters of a group that did not exist at this moment: all of them stood at 0.
    pub(crate) fn set(&mut self, counter: &'static str, value: i64, at: i64) {
        self.0.insert(counter, (value, at));
    }

    /// What a counter grew by since it was read last; `None` the first time, without a reading, and
    /// where it went back, as it does when something else took the name.
    pub(crate) fn grown(
        &mut self,
        counter: &'static str,
        value: Option<i64>,
        now: i64,
    ) -> Option<Grown> {
        let value = value?;
        let (before, at) = self.0.insert(counter, (value, now))?;
        let is_growth = value >= before && now > at;
        is_growth.then(|| Grown { value: (value - before) as f64, interval: now - at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_grows_between_two_readings() {
        let mut counters = Counters::default();
        assert_eq!(counters.grown("a", Some(5), 10), None);
        assert_eq!(counters.grown("a", None, 15), None);
        assert_eq!(counters.grown("a", Some(7), 20), Some(Grown { value: 2.0, interval: 10 }));
        assert_eq!(counters.grown("a", Some(7), 25), Some(Grown { value: 0.0, interval: 5 }));
        assert_eq!(counters.grown("a", Some(1), 30), None, "it went back");
        counters.set("b", 0, 10);
        assert_eq!(counters.grown("b", Some(3), 30), Some(Grown { value: 3.0, interval: 20 }));
    }
}
