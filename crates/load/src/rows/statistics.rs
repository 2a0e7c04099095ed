//! Running figures for the eye; the rows are the result.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use uncia_record::Invocation;

const SIGNIFICANT_DIGITS: u8 = 3;
/// Longer than any timeout that makes sense; what exceeds it counts as this.
const HIGHEST_NS: u64 = 24 * 3_600 * 1_000_000_000;
const NS_PER_S: f64 = 1e9;
const NS_PER_MS: f64 = 1e6;
const NS_PER_US: f64 = 1e3;

/// Counts and histograms of the requests so far, in constant memory.
pub struct Statistics {
    pub rows: u64,
    pub ok: u64,
    /// By outcome.
    pub failed: BTreeMap<String, u64>,
    latency: Histogram<u64>,
    lag: Histogram<u64>,
    /// The first and the last time at which a request was sent.
    sent: Option<(i64, i64)>,
}

/// Quantiles of what a histogram holds; none when it is empty.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Statistics {
    pub fn new() -> Self {
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

    pub fn add(&mut self, row: &Invocation) {
        self.rows += 1;
        if &*row.outcome == "ok" {
            self.ok += 1;
        } else if let Some(count) = self.failed.get_mut(&*row.outcome) {
            *count += 1;
        } else {
            self.failed.insert(row.outcome.to_string(), 1);
        }
        if let Some(sent) = row.sent {
            let (first, last) = self.sent.unwrap_or((sent, sent));
            self.sent = Some((first.min(sent), last.max(sent)));
        }
        let Some(scheduled) = row.scheduled else {
            return;
        };
        let record = |histogram: &mut Histogram<u64>, time: Option<i64>| {
            if let Some(time) = time {
                histogram.saturating_record(u64::try_from(time - scheduled).unwrap_or_default());
            }
        };
        record(&mut self.latency, row.received);
        record(&mut self.lag, row.sent);
    }

    /// Latency of the answered requests, in milliseconds.
    pub fn latency_ms(&self) -> Option<Quantiles> {
        quantiles(&self.latency, NS_PER_MS)
    }

    /// Requests per second from the first to the last that was sent.
    pub fn achieved_rate(&self) -> Option<f64> {
        let (first, last) = self.sent?;
        rate(self.rows, last - first)
    }

    /// How late the generator was, in microseconds.
    pub fn lag_us(&self) -> Option<Quantiles> {
        quantiles(&self.lag, NS_PER_US)
    }
}

/// The average rate of events of which the first and the last are so far apart.
pub fn rate(events: u64, span_ns: i64) -> Option<f64> {
    (events > 1 && span_ns > 0).then(|| (events - 1) as f64 * NS_PER_S / span_ns as f64)
}

fn quantiles(histogram: &Histogram<u64>, unit: f64) -> Option<Quantiles> {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / unit;
    (!histogram.is_empty()).then(|| Quantiles {
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        max: histogram.max() as f64 / unit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_outcome_and_measures_from_the_scheduled_time() {
        let mut statistics = Statistics::new();
        assert_eq!(statistics.latency_ms(), None);
        for k in 1..=100 {
            statistics.add(&Invocation {
                outcome: "ok".into(),
                scheduled: Some(k),
                sent: Some(k + k * 1_000),
                received: Some(k + k * 1_000_000),
                ..Invocation::default()
            });
        }
        let timeout =
            Invocation { outcome: "timeout".into(), scheduled: Some(0), ..Invocation::default() };
        statistics.add(&timeout);
        statistics.add(&timeout);
        assert_eq!((statistics.rows, statistics.ok, statistics.failed["timeout"]), (102, 100, 2));
        let latency = statistics.latency_ms().unwrap();
        assert!((latency.p50 - 50.0).abs() < 0.1 && (latency.max - 100.0).abs() < 0.1);
        let lag = statistics.lag_us().unwrap();
        assert!((lag.p99 - 99.0).abs() < 0.1, "{lag:?}");
    }
}
