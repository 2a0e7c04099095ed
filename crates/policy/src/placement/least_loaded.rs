//! The worker with the fewest requests in flight among those with room; among equals one that need
//! not evict, then the one with the fewest instances, then the first.

use super::Placement;
use crate::{FunctionView, Random, View, WorkerId, WorkerView};

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
        let allocation = function.room();
        let has_room = |worker: &WorkerView<'_>| worker.takes(function);
        let rank = |worker: &WorkerView<'_>| {
            (worker.in_flight(), !worker.has_room(allocation), worker.instances(), worker.id())
        };
        // Mostly one of those with the least load of all has room.
        let least_loaded = view.least_loaded().filter(has_room).min_by_key(rank);
        let best = least_loaded.or_else(|| view.takers(function).min_by_key(rank));
        best.map(|worker| worker.id())
    }
}
