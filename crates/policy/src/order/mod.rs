//! Which waiting request is next: one file per policy.

use crate::admission::Candidate;
use crate::{FunctionView, Random, View};

include!(concat!(env!("OUT_DIR"), "/order.rs"));

/// Ranks requests.
pub trait Order: Send {
    /// The rank of a request of the function that arrives, for as long as it waits: the smallest is
    /// served first, and among equals the first to arrive. What is requeued comes before all others.
    /// Ranks of 2^63 and more are equal.
    ///
    /// A rank that grows without bound over time, at most a bounded step behind the clock, keeps
    /// every request from starving: sooner or later all that arrives ranks behind it.
    fn rank(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        function: &FunctionView<'_>,
        request: &Candidate,
    ) -> u64;
}
