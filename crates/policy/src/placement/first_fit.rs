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
        let allocation = function.settings().allocation;
        view.workers()
            .find(|worker| worker.has_room(allocation))
            .or_else(|| view.workers().find(|worker| worker.has_room_after_eviction(allocation)))
            .map(|worker| worker.id())
    }
}
