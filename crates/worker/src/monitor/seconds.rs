//! The last minutes, a point for each second in which an invocation ended.

use std::collections::VecDeque;

use serde::Serialize;
use uncia_clock::{Moment, NS_PER_S};
use uncia_record::Invocation;

use super::{cpu_time, is_failure, latency};

/// Seconds that are kept.
pub(crate) const MAX_SECONDS: i64 = 300;
/// Durations of a second that its quantiles are computed from; further ones are left out.
const MAX_DURATIONS: usize = 65_536;

/// What ended in a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Point {
    /// Unix time in s.
    pub second: i64,
    pub invocations: u64,
    pub failures: u64,
    /// Those that waited for the start of an instance.
    pub starts: u64,
    /// Of the time from arrival to end, in ns; None if none ran.
    pub p50_ns: Option<i64>,
    pub p99_ns: Option<i64>,
    /// CPU time that the invocations used, in ns; None if none was measured.
    pub cpu_ns: Option<i64>,
    /// How long CPU quotas stopped them, in ns; None if that was not measured.
    pub throttled_ns: Option<i64>,
}

/// The seconds so far. They end when the next row comes, or when somebody reads.
#[derive(Debug, Default)]
pub(crate) struct Seconds {
    points: VecDeque<Point>,
    current: Option<Current>,
}

/// A second that is not over.
#[derive(Debug)]
struct Current {
    point: Point,
    durations: Vec<i64>,
}

impl Seconds {
    pub(crate) fn record(&mut self, now: Moment, row: &Invocation) {
        self.end_before(now);
        let current = self.current.get_or_insert_with(|| Current::new(now));
        let point = &mut current.point;
        point.invocations += 1;
        point.failures += u64::from(is_failure(row));
        point.starts += u64::from(row.initialization.is_some());
        add(&mut point.cpu_ns, cpu_time(row));
        add(&mut point.throttled_ns, row.throttled_time);
        if let Some(ns) = latency(row)
            && current.durations.len() < MAX_DURATIONS
        {
            current.durations.push(ns);
        }
    }

    /// The seconds that are over, after the one with this Unix time.
    pub(crate) fn after(&mut self, second: i64, now: Moment) -> impl Iterator<Item = &Point> {
        self.end_before(now);
        let least = (now.unix() / NS_PER_S - MAX_SECONDS).max(second + 1);
        self.points.iter().filter(move |point| point.second >= least)
    }

    /// Ends the current second if it is over.
    fn end_before(&mut self, now: Moment) {
        let second = now.unix() / NS_PER_S;
        let Some(current) = self.current.take_if(|current| current.point.second != second) else {
            return;
        };
        if self.points.len() == MAX_SECONDS as usize {
            self.points.pop_front();
        }
        self.points.push_back(current.end());
    }
}

impl Current {
    fn new(now: Moment) -> Self {
        let point = Point {
            second: now.unix() / NS_PER_S,
            invocations: 0,
            failures: 0,
            starts: 0,
            p50_ns: None,
            p99_ns: None,
            cpu_ns: None,
            throttled_ns: None,
        };
        Self { point, durations: Vec::new() }
    }

    fn end(mut self) -> Point {
        let p50_ns = quantile(&mut self.durations, 50);
        let p99_ns = quantile(&mut self.durations, 99);
        Point { p50_ns, p99_ns, ..self.point }
    }
}

/// The smallest duration that so many percent of them do not exceed.
fn quantile(durations: &mut [i64], percent: usize) -> Option<i64> {
    let rank = (durations.len() * percent).div_ceil(100).checked_sub(1)?;
    Some(*durations.select_nth_unstable(rank).1)
}

fn add(sum: &mut Option<i64>, value: Option<i64>) {
    if let Some(value) = value {
        *sum = Some(sum.unwrap_or(0).saturating_add(value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(second: i64) -> Moment {
        Moment::new((1_000 + second) * NS_PER_S + 400_000_000, second * NS_PER_S + 7)
    }

    fn row(execution: Option<i64>) -> Invocation {
        let outcome = Arc::from(if execution.is_some() { "ok" } else { "throttled" });
        Invocation { outcome, execution, ..Invocation::default() }
    }

    #[test]
    fn seconds_end_with_their_quantiles() {
        let mut seconds = Seconds::default();
        for ns in (1..=100).rev() {
            seconds.record(at(1), &Invocation { cpu_user: Some(2), ..row(Some(ns)) });
        }
        seconds.record(at(1), &row(None));
        assert_eq!(seconds.after(0, at(1)).count(), 0, "it is not over");
        let points: Vec<_> = seconds.after(0, at(2)).cloned().collect();
        let expected = Point {
            second: 1_001,
            invocations: 101,
            failures: 1,
            starts: 0,
            p50_ns: Some(50),
            p99_ns: Some(99),
            cpu_ns: Some(200),
            throttled_ns: None,
        };
        assert_eq!(points, [expected]);
        assert_eq!(seconds.after(1_001, at(2)).count(), 0);
    }

    #[test]
    fn old_seconds_are_forgotten() {
        let mut seconds = Seconds::default();
        for second in 0..2 * MAX_SECONDS {
            seconds.record(at(second), &row(Some(1)));
        }
        assert_eq!(seconds.points.len(), MAX_SECONDS as usize);
        let last = at(2 * MAX_SECONDS);
        assert_eq!(seconds.after(0, last).count(), MAX_SECONDS as usize);
        // Nor are those shown that are long ago and were followed by nothing.
        assert_eq!(seconds.after(0, at(2 * MAX_SECONDS + 100)).count(), 200);
    }
}
