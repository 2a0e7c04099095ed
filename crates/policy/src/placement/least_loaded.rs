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
        let mut best: Option<((u32, bool, u32), WorkerId)> = None;
        for worker in view.workers() {
            // Most are ruled out by their load alone.
            let load = worker.in_flight();
            if best.is_some_and(|((least, ..), _)| least < load)
                || !worker.has_room_after_eviction(allocation)
            {
                continue;
            }
            let rank = (load, !worker.has_room(allocation), worker.instances());
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, worker.id()));
            }
        }
        best.map(|(_, worker)| worker)
    }
}
