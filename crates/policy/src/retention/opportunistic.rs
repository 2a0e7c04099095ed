//! An instance is kept for longer the more room its worker has: for `keep_alive` on an empty one, for
//! `keep_alive_min` on a full one.
//!
//! `stop_at = idle_since + keep_alive_min + (keep_alive - keep_alive_min) x free`, where `free` is the
//! smallest part that is left of the worker's CPU, memory and instances; a resource without a bound has
//! all of it left
//!
//! Whatever its time, an idle instance gives way to one that is needed: that is for the eviction.

use super::{Retention, Schedule, pause};
use crate::{InstanceView, Nanos, Random, View, WorkerView};

/// Keeps instances for as long as there is room.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opportunistic;

/// Makes the policy.
pub fn policy() -> Box<dyn Retention> {
    Box::new(Opportunistic)
}

impl Retention for Opportunistic {
    fn schedule(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        instance: &InstanceView<'_>,
    ) -> Schedule {
        let most = instance.function().settings().keep_alive;
        let least = view.parameters().keep_alive_min.min(most);
        let keep_alive = least + free_part(&instance.worker(), most - least);
        Schedule { pause: pause(instance), stop_at: instance.since().saturating_add(keep_alive) }
    }
}

/// The part of `whole` that the worker has left.
fn free_part(worker: &WorkerView<'_>, whole: Nanos) -> Nanos {
    let (capacity, allocated) = (worker.capacity(), worker.allocated());
    let free = [
        (capacity.resources.cpu, allocated.cpu),
        (capacity.resources.memory, allocated.memory),
        (u64::from(capacity.max_instances), u64::from(worker.instances())),
    ];
    let parts = free.into_iter().map(|(of, taken)| {
        let left = u128::from(of.saturating_sub(taken)) * u128::from(whole);
        // At most the whole.
        if of == u64::MAX { whole } else { left.checked_div(of.into()).unwrap_or(0) as Nanos }
    });
    parts.min().unwrap_or(whole)
}
