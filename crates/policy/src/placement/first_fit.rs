//! The first worker with room, so that the last ones stay empty; before idle instances are evicted,
//! the first with room beside them.

use super::Placement;
use crate::{FunctionView, Random, View, WorkerId};

/// Packs instances on the first workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct FirstFit;

/// Makes the policy.
pub fn policy() -> Box<dyn Placement> {
    Box::new(FirstFit)
}

impl Placement for FirstFit {
    fn place(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<WorkerId> {
        let allocation = function.room();
        let mut after_eviction = None;
        for worker in view.workers() {
            if !worker.takes_again(function) {
                continue;
            }
            if worker.has_room(allocation) {
                return Some(worker.id());
            }
            if after_eviction.is_none() && worker.has_room_after_eviction(allocation) {
                after_eviction = Some(worker.id());
            }
        }
        after_eviction
    }
}
