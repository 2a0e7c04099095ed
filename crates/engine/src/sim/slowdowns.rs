//! How much longer requests took than on a machine of their own.

use serde_json::{Value, json};
use uncia_policy::{Nanos, Qos};

/// Times from arrival to end, over the durations of the phases, by class.
#[derive(Default)]
pub(super) struct Slowdowns {
    interactive: Vec<f32>,
    batch: Vec<f32>,
}

impl Slowdowns {
    /// Adds a request that was served; one whose phases take no time has no slowdown.
    pub(super) fn add(&mut self, qos: Qos, time: Nanos, alone: Nanos) {
        if alone > 0 {
            let class = match qos {
                Qos::Interactive => &mut self.interactive,
                Qos::Batch => &mut self.batch,
            };
            class.push((time as f64 / alone as f64) as f32);
        }
    }

    /// Mean and percentiles by class; null without requests.
    pub(super) fn summary(mut self) -> Value {
        json!({"interactive": summary(&mut self.interactive), "batch": summary(&mut self.batch)})
    }
}

fn summary(values: &mut [f32]) -> Value {
    if values.is_empty() {
        return Value::Null;
    }
    let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / values.len() as f64;
    values.sort_unstable_by(f32::total_cmp);
    // The least value that so many percent do not exceed.
    let percentile = |percent: usize| values[(values.len() * percent).div_ceil(100).max(1) - 1];
    json!({"mean": mean, "p50": percentile(50), "p99": percentile(99)})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut slowdowns = Slowdowns::default();
        for time in 1..=200 {
            slowdowns.add(Qos::Batch, time, 2);
        }
        slowdowns.add(Qos::Interactive, 5, 0);
        let summary = slowdowns.summary();
        assert_eq!(summary["interactive"], Value::Null);
        let expected = json!({"mean": 50.25, "p50": 50.0, "p99": 99.0});
        assert_eq!(summary["batch"], expected);
    }
}
