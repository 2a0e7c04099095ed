//! Requests are served in the order of their arrival.

use super::Order;
use crate::admission::Candidate;
use crate::{FunctionView, Random, View};

/// `rank = arrival`
#[derive(Debug, Clone, Copy, Default)]
pub struct FirstCome;

/// Makes the policy.
pub fn policy() -> Box<dyn Order> {
    Box::new(FirstCome)
}

impl Order for FirstCome {
    fn rank(
        &mut self,
        _: View<'_>,
        _: &mut Random,
        _: &FunctionView<'_>,
        request: &Candidate,
    ) -> u64 {
        request.arrived
    }
}
