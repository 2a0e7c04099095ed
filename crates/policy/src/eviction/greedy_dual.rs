//! The instance whose loss costs least goes: the one with the lowest priority, by
//!
//! `priority = clock + frequency x cost / size`
//!
//! `frequency`: requests of its function since the function last had no idle instance; `cost`: how long
//! the function's starts take; `size`: its memory. The clock is its worker's when it became idle, and the
//! worker's is the priority of what was evicted last, so that what is not used ages.
//!
//! Greedy-Dual-Size-Frequency as in Fuerst and Sharma, *FaasCache: Keeping Serverless Computing Alive with
//! Greedy-Dual Caching*, ASPLOS 2021, section 4.1. Active instances, where they may be taken, go as under
//! `least-recently-used`. A choice looks at all idle instances of the worker.

use rustc_hash::FxHashMap;

use super::{Eviction, Victims};
use crate::{FunctionId, InstanceId, InstanceView, Random, View, WorkerId};

/// Evicts what costs least.
#[derive(Debug, Default)]
pub struct GreedyDual {
    clocks: FxHashMap<WorkerId, f64>,
    priorities: FxHashMap<InstanceId, (FunctionId, f64)>,
    functions: FxHashMap<FunctionId, Uses>,
}

/// A function's instances that were idle at least once, and its arrivals before the first of them.
#[derive(Debug, Clone, Copy)]
struct Uses {
    instances: u32,
    arrivals_before: u64,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Eviction> {
    Box::new(GreedyDual::default())
}

impl GreedyDual {
    fn priority(&self, id: InstanceId) -> f64 {
        // One that never became idle by itself, such as on another schedule, is the first to go.
        self.priorities.get(&id).map_or(0.0, |(_, priority)| *priority)
    }
}

impl Eviction for GreedyDual {
    fn victim(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        worker: WorkerId,
        victims: Victims,
    ) -> Option<InstanceId> {
        let known = view.worker(worker)?;
        let active = || known.active().next_back().map(|instance| instance.id());
        let cheapest = known
            .idle()
            .map(|instance| (self.priority(instance.id()), instance.id()))
            // Of equals the longest idle, which comes first.
            .min_by(|(a, _), (b, _)| a.total_cmp(b));
        match (victims, cheapest) {
            (Victims::Active, _) | (Victims::Any, None) => active(),
            (_, Some((priority, id))) => {
                self.clocks.insert(worker, priority);
                Some(id)
            }
            (Victims::Idle, None) => None,
        }
    }

    fn on_idle(&mut self, _: View<'_>, instance: &InstanceView<'_>) {
        let function = instance.function();
        let (id, arrivals) = (function.id(), function.arrivals());
        let is_new = !self.priorities.contains_key(&instance.id());
        let uses = self.functions.entry(id).or_insert_with(|| Uses {
            instances: 0,
            arrivals_before: arrivals.saturating_sub(instance.served()),
        });
        uses.instances += u32::from(is_new);
        let frequency = (arrivals - uses.arrivals_before) as f64;
        let cost = function.mean_initialization().unwrap_or(0) as f64;
        let size = instance.allocation().memory.max(1) as f64;
        let clock = self.clocks.get(&instance.worker().id()).copied().unwrap_or(0.0);
        self.priorities.insert(instance.id(), (id, clock + frequency * cost / size));
    }

    fn on_gone(&mut self, instance: InstanceId) {
        let Some((function, _)) = self.priorities.remove(&instance) else { return };
        if let Some(uses) = self.functions.get_mut(&function) {
            uses.instances -= 1;
            if uses.instances == 0 {
                self.functions.remove(&function);
            }
        }
    }
}
