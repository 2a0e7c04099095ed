//! The worker with the fewest requests in flight among those with room; among equals one that need
//! not evict, then the one with the fewest instances, then the first.

use super::Placement;
use crate::{FunctionView, Random, View, WorkerId};

/// Spreads requests over the workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeastLoaded;

/// Makes the policy.
pub fn policy() -> Box<dyn Placement> {
    Box::new(LeastLoaded)
}

impl Placement for LeastLoaded {
    fn place(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<WorkerId> {
        let allocation = function.settings().allocation;
        view.workers()
            .filter(|worker| worker.has_room_after_eviction(allocation))
            .min_by_key(|worker| {
                let evicts = !worker.has_room(allocation);
                (worker.in_flight(), evicts, worker.instances(), worker.id())
            })
            .map(|worker| worker.id())
    }
}
