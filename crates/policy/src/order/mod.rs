//! Which waiting request is next: one file per policy.

use crate::admission::Candidate;
use crate::{FunctionView, Nanos, Random, View};

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

    /// Whether requests that fit are let in before the first of their queue, of this function, which does not;
    /// others could have passed it for so long. A request that is passed for ever starves.
    fn may_be_passed(
        &mut self,
        _view: View<'_>,
        _first: &FunctionView<'_>,
        _waited_first: Nanos,
    ) -> bool {
        false
    }
}
