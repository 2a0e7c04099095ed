//! Which errors are tried again or caught, and when.

use serde_json::Value;

use crate::Nanos;
use crate::error::names;
use crate::path::Path;

const NS_PER_S: f64 = 1e9;
/// What a retrier does unless it says otherwise.
pub(crate) const INTERVAL_S: u64 = 1;
pub(crate) const MAX_ATTEMPTS: u64 = 3;
pub(crate) const BACKOFF_RATE: f64 = 2.0;

/// A retrier: how often, and after which times, a state is tried again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Retrier {
    pub errors: Vec<String>,
    pub interval_s: u64,
    pub max_attempts: u64,
    pub backoff_rate: f64,
    pub max_delay_s: Option<u64>,
}

impl Retrier {
    /// How long is waited before the next try, after so many tries again.
    pub(crate) fn delay(&self, retries: u64) -> Nanos {
        let exponent = i32::try_from(retries).unwrap_or(i32::MAX);
        let seconds = self.interval_s as f64 * self.backoff_rate.powi(exponent);
        let seconds = self.max_delay_s.map_or(seconds, |most| seconds.min(most as f64));
        // A year at most, which is longer than an execution may take.
        (seconds.min(31_536_000.0) * NS_PER_S).round() as Nanos
    }
}

/// A catcher: where an execution goes on after an error, and where the error is put.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Catcher {
    pub errors: Vec<String>,
    pub next: usize,
    /// None discards the error.
    pub result_path: Option<Path>,
}

/// Whether an error is one of those that are named.
///
/// `is_branch` says whether a branch of the state has failed with it: then `States.BranchFailed` stands
/// for it as well. `States.TaskFailed` stands for every error but a timeout. What is wrong with the
/// definition or the data itself is caught by its own name alone.
pub(crate) fn matches(errors: &[String], error: &str, is_branch: bool) -> bool {
    let is_of_wildcards = error != names::RUNTIME && error != names::DATA_LIMIT;
    errors.iter().any(|name| {
        name == error
            || is_of_wildcards
                && match name.as_str() {
                    names::ALL => true,
                    names::TASK_FAILED => error != names::TIMEOUT,
                    names::BRANCH_FAILED => is_branch,
                    _ => false,
                }
    })
}

/// An error as a catcher's state gets it.
pub(crate) fn output(error: &str, cause: &str) -> Value {
    serde_json::json!({ "Error": error, "Cause": cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_their_bound() {
        let retrier = Retrier {
            errors: vec![],
            interval_s: 3,
            max_attempts: 9,
            backoff_rate: 1.5,
            max_delay_s: Some(6),
        };
        let delays: Vec<_> = (0..4).map(|retries| retrier.delay(retries) / 1_000_000).collect();
        assert_eq!(delays, [3000, 4500, 6000, 6000]);
        let endless = Retrier { max_delay_s: None, backoff_rate: 1e9, ..retrier };
        assert_eq!(endless.delay(400), 31_536_000_000_000_000);
    }

    #[test]
    fn names_stand_for_errors() {
        let matches = |name: &str, error, is_branch| matches(&[name.to_owned()], error, is_branch);
        assert!(matches("Own", "Own", false));
        assert!(!matches("Own", "Other", false));
        assert!(matches(names::ALL, "Own", false));
        assert!(matches(names::TASK_FAILED, "Own", false));
        assert!(matches(names::TASK_FAILED, "Own", true));
        assert!(!matches(names::TASK_FAILED, names::TIMEOUT, true));
        assert!(!matches(names::TASK_FAILED, names::RUNTIME, true));
        assert!(matches(names::BRANCH_FAILED, "Own", true));
        assert!(matches(names::BRANCH_FAILED, names::TIMEOUT, true));
        assert!(!matches(names::BRANCH_FAILED, "Own", false));
        assert!(!matches(names::BRANCH_FAILED, names::DATA_LIMIT, true));
        assert!(matches(names::ALL, names::TIMEOUT, false));
        assert!(!matches(names::ALL, names::RUNTIME, false));
        assert!(!matches(names::ALL, names::DATA_LIMIT, true));
        assert!(matches(names::DATA_LIMIT, names::DATA_LIMIT, false));
    }
}
