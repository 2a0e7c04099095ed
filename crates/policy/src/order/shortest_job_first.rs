//! Requests of functions that take less time are served first, within bounds.
//!
//! `rank = arrival + overtaking_times x mean duration`, at most `overtaking_max` after the arrival (10
//! times, 60 s). A request is overtaken only by those that arrive until its rank has passed: by none later
//! than that after it, so that it cannot starve. A function without a past counts as one that takes no
//! time, and is known after its first invocation.

use super::Order;
use crate::admission::Candidate;
use crate::{FunctionView, Random, View};

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
        view: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
        request: &Candidate,
    ) -> u64 {
        view.parameters().rank(request.arrived, function.mean_duration().unwrap_or(0))
    }
}
