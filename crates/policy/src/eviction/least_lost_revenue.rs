//! Idle instances first, by `greedy-dual`; then the active one whose loss costs least revenue:
//!
//! `lost revenue = time served x (price of CPU x CPU in use + price of memory x memory in use)`
//!
//! What is preempted is not billed. The prices' ratio is 9.6 per vCPU to one per GB, as in the paper; what
//! is in use is the last sample, or the allocation of an instance that was never sampled. Among equals
//! the one that began last goes.
//!
//! Leopard, section 4.3.2: the preemptible sandbox with the shortest runtime and the fewest resources.

use super::greedy_dual::GreedyDual;
use super::{Eviction, Victims};
use crate::{InstanceId, InstanceView, Random, Resources, View, WorkerId};

/// The price of a micro-vCPU in that of a byte: 9.6 x 10^9 bytes a vCPU.
const BYTES_PER_MICRO_VCPU: u128 = 9_600;

/// Preempts what costs least.
#[derive(Debug, Default)]
pub struct LeastLostRevenue {
    idle: GreedyDual,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Eviction> {
    Box::new(LeastLostRevenue::default())
}

fn lost_revenue(view: View<'_>, instance: &InstanceView<'_>) -> u128 {
    let sample = instance.used();
    let used = if sample == Resources::ZERO { instance.allocation() } else { sample };
    let time = u128::from(view.now().saturating_sub(instance.since()));
    time * (u128::from(used.cpu) * BYTES_PER_MICRO_VCPU + u128::from(used.memory))
}

impl Eviction for LeastLostRevenue {
    fn reads_samples(&self) -> bool {
        true
    }

    fn victim(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        worker: WorkerId,
        victims: Victims,
    ) -> Option<InstanceId> {
        if victims != Victims::Active
            && let Some(idle) = self.idle.victim(view, random, worker, Victims::Idle)
        {
            return Some(idle);
        }
        if victims == Victims::Idle {
            return None;
        }
        let active = view.worker(worker)?.active();
        let cheapest = active.rev().min_by_key(|instance| lost_revenue(view, instance));
        cheapest.map(|instance| instance.id())
    }

    fn on_idle(&mut self, view: View<'_>, instance: &InstanceView<'_>) {
        self.idle.on_idle(view, instance);
    }

    fn on_gone(&mut self, instance: InstanceId) {
        self.idle.on_gone(instance);
    }
}
