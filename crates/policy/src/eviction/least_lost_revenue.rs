//! Idle instances first, by `greedy-dual`; then the active one whose loss costs least revenue:
//!
//! `lost revenue = price of CPU x CPU time used + price of memory x memory used over time`
//!
//! What is preempted is not billed. The prices' ratio is 9.6 per vCPU to one per GB, as in the paper; what
//! was used since it began to serve is summed over its samples, with its allocation until the first. Among
//! equals the one that began last goes.
//!
//! Leopard, section 4.3.2: the preemptible sandbox with the shortest runtime and the fewest resources.

use super::greedy_dual::GreedyDual;
use super::{Eviction, Victims};
use crate::{InstanceId, InstanceView, Random, View, WorkerId};

/// The prices of a micro-vCPU and of a byte: 9.6 x 10^-6 to 2^-30, in whole numbers.
const CPU_PRICE: u128 = 48 << 30;
const MEMORY_PRICE: u128 = 5_000_000;

/// Preempts what costs least.
#[derive(Debug, Default)]
pub struct LeastLostRevenue {
    idle: GreedyDual,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Eviction> {
    Box::new(LeastLostRevenue::default())
}

fn lost_revenue(instance: &InstanceView<'_>) -> u128 {
    let used = instance.volume();
    let (cpu, memory) =
        (used.cpu.saturating_mul(CPU_PRICE), used.memory.saturating_mul(MEMORY_PRICE));
    cpu.saturating_add(memory)
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
        let cheapest = active.rev().min_by_key(lost_revenue);
        cheapest.map(|instance| instance.id())
    }

    fn on_idle(&mut self, view: View<'_>, instance: &InstanceView<'_>) {
        self.idle.on_idle(view, instance);
    }

    fn on_gone(&mut self, instance: InstanceId) {
        self.idle.on_gone(instance);
    }
}
