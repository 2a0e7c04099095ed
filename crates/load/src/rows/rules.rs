//! The rules that end a run early: too many errors, a generator that falls behind, a system under
//! test that slows down.
//!
//! Rows in, verdict out: time is that of the rows, so that the same rows end every run alike.

use serde::Serialize;

/// The time that a window of rows spans, at least.
const WINDOW_NS: i64 = 1_000_000_000;
/// Rows that a p99 of the lag is taken of, at least.
const LAG_ROWS: usize = 100;
/// Rows that a median of the latency is taken of, at least.
const LATENCY_ROWS: usize = 20;
/// Without a known number of requests, rows that the share of errors is taken of, at least.
const BUDGET_ROWS: u64 = 100;
const NS_PER_MS: f64 = 1e6;
const NS_PER_S: f64 = 1e9;

/// When to end a run early. None: the rule does not apply.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Rules {
    /// The share of all scheduled requests that may fail, in [0, 1].
    pub error_budget: Option<f64>,
    /// Bound of the p99 of `sent - scheduled`.
    pub lag_p99_ns: Option<i64>,
    /// Bound of the median latency, as a multiple of that at the beginning.
    pub slowdown: Option<f64>,
    /// Requests that the run is to send; 0 if that is not known, as with clients that wait for
    /// answers: the budget is then a share of the requests so far.
    pub scheduled: u64,
}

/// Which rule ended a run, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// `error_budget`, `lag_p99` or `slowdown`.
    pub rule: &'static str,
    /// A sentence with the figures.
    pub message: String,
}

/// What the rules need to know of a request that is over; times as in the rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    pub ok: bool,
    /// None of a later stage of a chain, which has neither lag nor a latency of its own.
    pub scheduled: Option<i64>,
    pub sent: i64,
    /// The end of the answer.
    pub received: Option<i64>,
}

/// Watches the rows of a run.
#[derive(Debug)]
pub(super) struct Watch {
    rules: Rules,
    rows: u64,
    failed: u64,
    /// The latest time that a row has told.
    now: i64,
    lags: Window,
    latencies: Window,
    /// The median latency of the first window.
    first_median: Option<i64>,
}

impl Watch {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            rows: 0,
            failed: 0,
            now: i64::MIN,
            lags: Window::new(LAG_ROWS),
            latencies: Window::new(LATENCY_ROWS),
            first_median: None,
        }
    }

    /// Takes the next row; says whether it ends the run.
    pub(super) fn add(&mut self, row: Observed) -> Option<Stopped> {
        self.rows += 1;
        self.failed += u64::from(!row.ok);
        self.now = self.now.max(row.received.unwrap_or(row.sent));
        self.check_errors(&row).or_else(|| self.check_lag(&row)).or_else(|| self.check_speed(&row))
    }

    fn check_errors(&self, row: &Observed) -> Option<Stopped> {
        let budget = self.rules.error_budget.filter(|_| !row.ok || self.rules.scheduled == 0)?;
        let (of, which) = match self.rules.scheduled {
            0 if self.rows < BUDGET_ROWS => return None,
            0 => (self.rows, "requests so far"),
            scheduled => (scheduled, "scheduled requests"),
        };
        // The quotient of the counts is rounded as the budget was when it was read, so that a share
        // that equals the budget does not exceed it.
        (self.failed as f64 / of as f64 > budget).then(|| Stopped {
            rule: "error_budget",
            message: format!(
                "{} of {of} {which} have failed, more than the share of {budget} that \
                 error_budget allows",
                self.failed
            ),
        })
    }

    fn check_lag(&mut self, row: &Observed) -> Option<Stopped> {
        let bound = self.rules.lag_p99_ns?;
        if let Some(scheduled) = row.scheduled {
            self.lags.add(row.sent.saturating_sub(scheduled), row.sent);
        }
        let window = self.lags.close(self.now)?;
        let p99 = window.quantile(99, 100);
        let stopped = (p99 > bound).then(|| Stopped {
            rule: "lag_p99",
            message: format!(
                "the generator cannot keep up: over {:.1} s and {} requests the p99 of the time \
                 from the scheduled to the actual sending was {:.3} ms, and lag_p99 allows {:.3} ms",
                window.span_ns as f64 / NS_PER_S,
                window.values.len(),
                p99 as f64 / NS_PER_MS,
                bound as f64 / NS_PER_MS
            ),
        });
        self.lags.begin(self.now);
        stopped
    }

    fn check_speed(&mut self, row: &Observed) -> Option<Stopped> {
        let bound = self.rules.slowdown?;
        if let (true, Some(scheduled), Some(received)) = (row.ok, row.scheduled, row.received) {
            self.latencies.add(received.saturating_sub(scheduled), received);
        }
        let window = self.latencies.close(self.now)?;
        let median = window.quantile(50, 100);
        // Below a nanosecond nothing was measured.
        let first = *self.first_median.get_or_insert(median.max(1));
        let stopped = (median as f64 > bound * first as f64).then(|| Stopped {
            rule: "slowdown",
            message: format!(
                "the answers have become slower: over {:.1} s and {} requests the median latency \
                 was {:.3} ms, {:.1} times the {:.3} ms at the beginning, and slowdown allows \
                 {bound} times",
                window.span_ns as f64 / NS_PER_S,
                window.values.len(),
                median as f64 / NS_PER_MS,
                median as f64 / first as f64,
                first as f64 / NS_PER_MS
            ),
        });
        self.latencies.begin(self.now);
        stopped
    }
}

/// Values of rows of at least a second, and so many of them that a quantile means something.
#[derive(Debug)]
struct Window {
    least_rows: usize,
    /// None before the first row.
    since: Option<i64>,
    values: Vec<i64>,
    span_ns: i64,
}

impl Window {
    fn new(least_rows: usize) -> Self {
        Self { least_rows, since: None, values: Vec::new(), span_ns: 0 }
    }

    /// Takes the value of a row of time `at`, which counts only for the first row.
    fn add(&mut self, value: i64, at: i64) {
        self.since.get_or_insert(at);
        self.values.push(value);
    }

    /// The window, if it is complete at `now`.
    fn close(&mut self, now: i64) -> Option<&mut Self> {
        self.span_ns = now.saturating_sub(self.since?);
        (self.span_ns >= WINDOW_NS && self.values.len() >= self.least_rows).then_some(self)
    }

    /// The value of rank ceil(n x numerator / denominator), from 1: the smallest that is not
    /// exceeded by more than the rest.
    fn quantile(&mut self, numerator: usize, denominator: usize) -> i64 {
        let rank = (self.values.len() * numerator).div_ceil(denominator).max(1);
        *self.values.select_nth_unstable(rank - 1).1
    }

    fn begin(&mut self, now: i64) {
        self.since = Some(now);
        self.values.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    fn row(at: i64, lag: i64, latency: i64) -> Observed {
        Observed { ok: true, scheduled: Some(at), sent: at + lag, received: Some(at + latency) }
    }

    fn at(row: &Observed) -> i64 {
        row.scheduled.expect("all of these have a time")
    }

    fn lag(row: &Observed) -> i64 {
        row.sent - at(row)
    }

    #[test]
    fn what_follows_an_answer_has_neither_lag_nor_latency() {
        let rules = Rules { lag_p99_ns: Some(1), slowdown: Some(1.5), ..Rules::default() };
        let later = (0..1_000).map(|k| {
            let sent = k * 10 * MS;
            Observed { ok: true, scheduled: None, sent, received: Some(sent + k * MS) }
        });
        assert_eq!(run(rules, later), None);
    }

    fn failed(at: i64) -> Observed {
        Observed { ok: false, scheduled: Some(at), sent: at, received: None }
    }

    /// The number of the row that ends the run, and the verdict.
    fn run(rules: Rules, rows: impl IntoIterator<Item = Observed>) -> Option<(usize, Stopped)> {
        let mut watch = Watch::new(rules);
        rows.into_iter().enumerate().find_map(|(number, row)| Some((number, watch.add(row)?)))
    }

    #[test]
    fn the_error_budget_is_a_share_of_what_is_scheduled() {
        // 0.29 x 100 is less than 29 in doubles.
        for (budget, allowed) in [(0.0, 0), (0.1, 10), (0.29, 29), (1.0, 100)] {
            let rules = Rules { error_budget: Some(budget), scheduled: 100, ..Rules::default() };
            let ended = run(rules, (0..100).map(failed));
            assert_eq!(ended.map(|(number, _)| number), (allowed < 100).then_some(allowed));
        }
        let rules = Rules { error_budget: Some(0.1), scheduled: 30, ..Rules::default() };
        let (number, stopped) = run(rules, (0..30).map(failed)).unwrap();
        assert_eq!((number, stopped.rule), (3, "error_budget"));
        assert_eq!(
            stopped.message,
            "4 of 30 scheduled requests have failed, more than the share of 0.1 that \
             error_budget allows"
        );
    }

    #[test]
    fn without_a_known_number_the_budget_is_a_share_of_the_requests_so_far() {
        let rules = Rules { error_budget: Some(0.5), ..Rules::default() };
        assert_eq!(run(rules, (0..99).map(failed)), None);
        assert_eq!(run(rules, (0..200).map(failed)).unwrap().0, 99);
        // Half of them fail, which is allowed; then one more.
        let even = (0..200).map(|k| if k % 2 == 0 { row(k, 0, 1) } else { failed(k) });
        let (number, stopped) = run(rules, even.chain([failed(200)])).unwrap();
        assert_eq!(number, 200);
        assert!(stopped.message.starts_with("101 of 201 requests so far"), "{stopped:?}");
    }

    #[test]
    fn the_lag_of_each_second_is_bounded() {
        let rules = Rules { lag_p99_ns: Some(10 * MS), ..Rules::default() };
        // 1 late of 200 is beyond the p99; 4 of 200 are not.
        let second = |start: i64, late: i64| {
            let lag = move |k| if (100..100 + late).contains(&k) { 12 * MS } else { 0 };
            (0..=200).map(move |k| row(start + k * 5 * MS, lag(k), 20 * MS))
        };
        assert_eq!(run(rules, second(0, 1).chain(second(1_005 * MS, 1))), None);
        let (number, stopped) = run(rules, second(0, 1).chain(second(1_005 * MS, 4))).unwrap();
        assert!((390..402).contains(&number), "{number}");
        assert_eq!(stopped.rule, "lag_p99");
        assert!(stopped.message.contains("was 12.000 ms, and lag_p99 allows 10.000 ms"));
    }

    #[test]
    fn a_few_rows_have_no_p99_however_long_they_take() {
        let rules = Rules { lag_p99_ns: Some(MS), ..Rules::default() };
        let late = |k: i64| row(k * 100 * MS, 50 * MS, 60 * MS);
        assert_eq!(run(rules, (0..99).map(late)), None);
        assert_eq!(run(rules, (0..100).map(late)).unwrap().0, 99);
    }

    #[test]
    fn the_median_latency_is_compared_to_the_first() {
        let rules = Rules { slowdown: Some(3.0), ..Rules::default() };
        let rows = |latency: fn(i64) -> i64| (0..100).map(move |k| row(k * 50 * MS, 0, latency(k)));
        assert_eq!(run(rules, rows(|_| 10 * MS)), None);
        assert_eq!(run(rules, rows(|k| if k < 50 { 10 * MS } else { 30 * MS })), None);
        let (number, stopped) =
            run(rules, rows(|k| if k < 50 { 10 * MS } else { 31 * MS })).unwrap();
        assert!((60..90).contains(&number), "{number}");
        assert_eq!(stopped.rule, "slowdown");
        assert!(stopped.message.contains("31.000 ms, 3.1 times the 10.000 ms"), "{stopped:?}");
        // Outliers do not move the median.
        assert_eq!(run(rules, rows(|k| if k % 3 == 0 { 900 * MS } else { 10 * MS })), None);
    }

    #[test]
    fn failures_have_no_latency_and_still_tell_the_time() {
        let rules = Rules { slowdown: Some(2.0), ..Rules::default() };
        let first = (0..30).map(|k| row(k * 50 * MS, 0, MS));
        let errors = (0..1_000).map(|k| failed(1_500 * MS + k * 50 * MS));
        assert_eq!(run(rules, first.clone().chain(errors)), None);
        let slow = (0..30).map(|k| row(60_000 * MS + k, 0, 5 * MS));
        assert!(run(rules, first.chain(slow)).is_some());
    }

    fn any_rows() -> impl Strategy<Value = Vec<Observed>> {
        let one = (0i64..20 * MS, any::<bool>(), 0i64..30 * MS, 0i64..60 * MS);
        prop::collection::vec(one, 0..600).prop_map(|steps| {
            let mut at = 0;
            let rows = steps.into_iter().map(|(gap, ok, lag, latency)| {
                at += gap;
                Observed {
                    ok,
                    scheduled: Some(at),
                    sent: at + lag,
                    received: ok.then_some(at + lag + latency),
                }
            });
            rows.collect()
        })
    }

    proptest! {
        #[test]
        fn without_rules_nothing_ends_a_run(rows in any_rows()) {
            prop_assert_eq!(run(Rules::default(), rows), None);
        }

        /// The budget ends the run at the first failure that exceeds it, in integers.
        #[test]
        fn the_budget_against_a_count(rows in any_rows(), percent in 0u64..=100, scheduled in 1u64..800) {
            let budget = format!("{}.{:02}", percent / 100, percent % 100).parse().unwrap();
            let rules = Rules { error_budget: Some(budget), scheduled, ..Rules::default() };
            let mut failures = 0;
            let expected = rows.iter().position(|row| {
                failures += u64::from(!row.ok);
                failures * 100 > percent * scheduled
            });
            prop_assert_eq!(run(rules, rows).map(|(number, _)| number), expected);
        }

        /// Lags below the bound never end a run; lags above it all the time do, once there are
        /// enough rows and a second has passed.
        #[test]
        fn the_lag_bound_is_kept(rows in any_rows(), bound in 0i64..40 * MS) {
            let rules = Rules { lag_p99_ns: Some(bound), ..Rules::default() };
            let within = rows.iter().all(|row| lag(row) <= bound);
            let beyond = rows.iter().all(|row| lag(row) > bound);
            let ended = run(rules, rows.clone());
            prop_assert!(!within || ended.is_none());
            let spans = rows.first().zip(rows.last()).is_some_and(|(a, b)| b.sent - a.sent >= WINDOW_NS);
            prop_assert_eq!(ended.is_some() || !(beyond && spans && rows.len() >= LAG_ROWS), true);
        }

        /// Every latency is less than twice every other.
        #[test]
        fn latencies_within_the_factor_never_end_a_run(rows in any_rows(), base in MS..9 * MS) {
            let rows = rows.into_iter().enumerate().map(|(k, row)| Observed {
                received: row.received.map(|_| at(&row) + base + (k as i64 % 7) * base / 7),
                ..row
            });
            let rules = Rules { slowdown: Some(2.0), ..Rules::default() };
            prop_assert_eq!(run(rules, rows), None);
        }
    }
}
