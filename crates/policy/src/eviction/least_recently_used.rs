//! The instance that has idled longest goes; if none is idle and active ones may, the one that has
//! least work to lose: that whose requests changed last.

use super::{Eviction, Victims};
use crate::{InstanceId, Random, View, WorkerId};

/// Evicts the longest idle, preempts the last to change.
#[derive(Debug, Clone, Copy, Default)]
pub struct LeastRecentlyUsed;

/// Makes the policy.
pub fn policy() -> Box<dyn Eviction> {
    Box::new(LeastRecentlyUsed)
}

impl Eviction for LeastRecentlyUsed {
    fn victim(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        worker: WorkerId,
        victims: Victims,
    ) -> Option<InstanceId> {
        let worker = view.worker(worker)?;
        let idle = || worker.idle().next();
        let active = || worker.active().next_back();
        let victim = match victims {
            Victims::Idle => idle(),
            Victims::Active => active(),
            Victims::Any => idle().or_else(active),
        };
        victim.map(|instance| instance.id())
    }
}
