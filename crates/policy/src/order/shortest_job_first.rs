//! Requests of functions that take less time are served first, within bounds.
//!
//! `rank = arrival + 10 x mean duration`, at most 60 s after the arrival. A request is overtaken only
//! by those that arrive until its rank has passed: by none later than ten times its own mean
//! duration, or 60 s, after it, so that it cannot starve. A function without a past counts as one
//! that takes no time, and is known after its first invocation.

use super::Order;
use crate::admission::Candidate;
use crate::{FunctionView, Nanos, Random, View};

/// For how many times its own duration a request may be overtaken.
const PATIENCE: u64 = 10;

/// For how long a request may be overtaken at most.
const MAX_DELAY: Nanos = 60_000_000_000;

/// Ranks by mean duration, with a guard against starvation.
#[derive(Debug, Clone, Copy, Default)]
pub struct ShortestJobFirst;

/// Makes the policy.
pub fn policy() -> Box<dyn Order> {
    Box::new(ShortestJobFirst)
}

impl Order for ShortestJobFirst {
    fn rank(
        &mut self,
        _: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
        request: &Candidate,
    ) -> u64 {
        let delay = function.mean_duration().unwrap_or(0).saturating_mul(PATIENCE).min(MAX_DELAY);
        request.arrived.saturating_add(delay)
    }
}
