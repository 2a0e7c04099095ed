//! Running figures for the eye; the rows are the result.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use super::batch::Completion;

const SIGNIFICANT_DIGITS: u8 = 3;
/// Longer than any timeout that makes sense; what exceeds it counts as this.
const HIGHEST_NS: u64 = 24 * 3_600 * 1_000_000_000;
const NS_PER_S: f64 = 1e9;
const NS_PER_MS: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

/// Counts and histograms of the requests so far, in constant memory.
pub(crate) struct Statistics {
    pub rows: u64,
    pub ok: u64,
    /// By outcome.
    pub failed: BTreeMap<String, u64>,
    latency: Histogram<u64>,
    lag: Histogram<u64>,
    /// The first and the last time at which a request was sent.
    sent: Option<(i64, i64)>,
}

/// Quantiles of what a histogram holds. None: there are fewer rows than the quantile needs, see
/// [`MINIMUM_ROWS`].
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 95th percentile.
    pub p95: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    pub p999: Option<f64>,
    /// The 99.99th percentile.
    pub p9999: Option<f64>,
    /// The largest value.
    pub max: f64,
}

/// Of each quantile, the least number of rows n of which a 95 % confidence interval exists:
/// 1 - q^n - (1 - q)^n >= 0.95. Figures of fewer rows would be an accident; the summaries in
/// Python follow the same rule.
const MINIMUM_ROWS: [(f64, u64); 6] =
    [(0.5, 6), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2_995), (0.9999, 29_956)];

impl Statistics {
    pub(crate) fn new() -> Self {
        let histogram = || {
            Histogram::new_with_max(HIGHEST_NS, SIGNIFICANT_DIGITS)
                .expect("a day in nanoseconds and three digits are within a histogram's bounds")
        };
        Self {
            rows: 0,
            ok: 0,
            failed: BTreeMap::new(),
            latency: histogram(),
            lag: histogram(),
            sent: None,
        }
    }

    /// Counts a request that ended with this outcome.
    #[inline]
    pub(crate) fn add(&mut self, completion: &Completion, outcome: &str) {
        self.rows += 1;
        if outcome == "ok" {
            self.ok += 1;
        } else if let Some(count) = self.failed.get_mut(outcome) {
            *count += 1;
        } else {
            self.failed.insert(outcome.to_owned(), 1);
        }
        let &Completion { scheduled, sent, received, .. } = completion;
        let (first, last) = self.sent.unwrap_or((sent, sent));
        self.sent = Some((first.min(sent), last.max(sent)));
        // What follows an answer was to be sent at no time of its own.
        let Some(scheduled) = scheduled else { return };
        let since = |time: i64| u64::try_from(time.saturating_sub(scheduled)).unwrap_or_default();
        if let Some(received) = received {
            self.latency.saturating_record(since(received));
        }
        self.lag.saturating_record(since(sent));
    }

    /// Latency of the answered requests, in milliseconds.
    pub(crate) fn latency_ms(&self) -> Option<Quantiles> {
        quantiles(&self.latency, NS_PER_MS)
    }

    /// Requests per second from the first to the last that was sent.
    pub(crate) fn achieved_rate(&self) -> Option<f64> {
        let (first, last) = self.sent?;
        rate(self.rows, last - first)
    }

    /// How late the generator was, in microseconds.
    pub(crate) fn lag_us(&self) -> Option<Quantiles> {
        quantiles(&self.lag, NS_PER_US)
    }
}

/// The average rate of events of which the first and the last are so far apart.
pub(crate) fn rate(events: u64, span_ns: i64) -> Option<f64> {
    (events > 1 && span_ns > 0).then(|| (events - 1) as f64 * NS_PER_S / span_ns as f64)
}

fn quantiles(histogram: &Histogram<u64>, unit: f64) -> Option<Quantiles> {
    let rows = histogram.len();
    let [p50, p90, p95, p99, p999, p9999] = MINIMUM_ROWS.map(|(quantile, least)| {
        (rows >= least).then(|| histogram.value_at_quantile(quantile) as f64 / unit)
    });
    let max = histogram.max() as f64 / unit;
    (rows > 0).then_some(Quantiles { p50, p90, p95, p99, p999, p9999, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::plan::Entry;

    fn completion(scheduled: i64, sent: i64, received: Option<i64>) -> Completion {
        let entry = Entry { at: 0, stream: 0, number: 0, burst: None };
        let mut completion = Completion::new(entry, Some(scheduled), sent);
        completion.received = received;
        completion
    }

    #[test]
    fn counts_by_outcome_and_measures_from_the_scheduled_time() {
        let mut statistics = Statistics::new();
        assert_eq!(statistics.latency_ms(), None);
        for k in 1..=1_000 {
            let answered = completion(k, k + k * 1_000, Some(k + k * 1_000_000));
            statistics.add(&answered, "ok");
        }
        statistics.add(&completion(0, 0, None), "timeout");
        statistics.add(&completion(0, 0, None), "timeout");
        assert_eq!((statistics.rows, statistics.ok), (1_002, 1_000));
        assert_eq!(statistics.failed["timeout"], 2);
        let latency = statistics.latency_ms().unwrap();
        let near = |found: f64, expected: f64| (found - expected).abs() < expected * 1e-3;
        assert!(near(latency.p50.unwrap(), 500.0) && near(latency.max, 1_000.0), "{latency:?}");
        assert!(near(latency.p95.unwrap(), 950.0), "{latency:?}");
        let lag = statistics.lag_us().unwrap();
        assert!(near(lag.p99.unwrap(), 990.0), "{lag:?}");
        assert_eq!((lag.p999, lag.p9999), (None, None));
    }

    #[test]
    fn a_quantile_of_too_few_rows_is_none() {
        for (quantile, least) in MINIMUM_ROWS {
            let covered = |rows: u64| {
                1.0 - f64::powf(quantile, rows as f64) - f64::powf(1.0 - quantile, rows as f64)
            };
            assert!(covered(least) >= 0.95 && covered(least - 1) < 0.95, "{quantile}");
        }
        let mut statistics = Statistics::new();
        let known = |statistics: &Statistics| {
            let Quantiles { p50, p90, p95, p99, p999, p9999, .. } = statistics.lag_us().unwrap();
            [p50, p90, p95, p99, p999, p9999].iter().flatten().count()
        };
        for row in 1..=30_000 {
            statistics.add(&completion(0, 5, None), "timeout");
            let expected = MINIMUM_ROWS.iter().filter(|(_, least)| *least <= row).count();
            if row < 400 || row % 1_000 == 0 {
                assert_eq!(known(&statistics), expected, "{row} rows");
            }
        }
        assert_eq!(statistics.latency_ms(), None);
    }
}
