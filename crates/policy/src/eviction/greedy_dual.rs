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
//! `least-recently-used`.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rustc_hash::FxHashMap;

use super::{Eviction, Victims};
use crate::{FunctionId, InstanceId, InstanceView, Random, View, WorkerId, WorkerView};

/// More outdated entries of a worker than this, and than valid ones, are removed at once.
const MAX_OUTDATED: usize = 64;

/// Evicts what costs least.
#[derive(Debug, Default)]
pub struct GreedyDual {
    workers: FxHashMap<WorkerId, Queue>,
    instances: FxHashMap<InstanceId, Standing>,
    functions: FxHashMap<FunctionId, Uses>,
    /// How often an instance became idle.
    idled: u64,
}

/// The idle instances of a worker, and others that were, the cheapest first.
#[derive(Debug, Default)]
struct Queue {
    clock: f64,
    entries: BinaryHeap<Entry>,
}

/// An instance as it became idle; outdated if it did so again.
#[derive(Debug, Clone, Copy)]
struct Entry {
    priority: f64,
    idled: u64,
    instance: InstanceId,
}

impl Ord for Entry {
    /// The one to evict is the greatest: the cheapest, and of equals the longest idle.
    fn cmp(&self, other: &Self) -> Ordering {
        other.priority.total_cmp(&self.priority).then(other.idled.cmp(&self.idled))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// What is known of an instance that was idle at least once.
#[derive(Debug, Clone, Copy)]
struct Standing {
    function: FunctionId,
    idled: u64,
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

/// Whether the instance of an entry idles since then, and may be evicted.
fn is_valid(view: View<'_>, instances: &FxHashMap<InstanceId, Standing>, entry: &Entry) -> bool {
    view.instance(entry.instance).is_some_and(|instance| instance.is_evictable())
        && instances.get(&entry.instance).is_some_and(|known| known.idled == entry.idled)
}

impl GreedyDual {
    /// The idle instance to evict from a worker.
    fn cheapest(&mut self, view: View<'_>, worker: WorkerId) -> Option<InstanceId> {
        let queue = self.workers.get_mut(&worker)?;
        while let Some(entry) = queue.entries.peek() {
            if is_valid(view, &self.instances, entry) {
                queue.clock = entry.priority;
                return Some(entry.instance);
            }
            queue.entries.pop();
        }
        None
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
        let active = |worker: WorkerView<'_>| Some(worker.active().next_back()?.id());
        let idle = if victims == Victims::Active { None } else { self.cheapest(view, worker) };
        if idle.is_none() && victims != Victims::Idle { active(view.worker(worker)?) } else { idle }
    }

    fn on_idle(&mut self, view: View<'_>, instance: &InstanceView<'_>) {
        let (function, worker) = (instance.function(), instance.worker());
        let (id, arrivals) = (function.id(), function.arrivals());
        self.idled += 1;
        let standing = Standing { function: id, idled: self.idled };
        let is_new = self.instances.insert(instance.id(), standing).is_none();
        let uses = self.functions.entry(id).or_insert_with(|| Uses {
            instances: 0,
            arrivals_before: arrivals.saturating_sub(instance.served()),
        });
        uses.instances += u32::from(is_new);
        let frequency = (arrivals - uses.arrivals_before) as f64;
        let cost = function.mean_initialization().unwrap_or(0) as f64;
        let size = instance.allocation().memory.max(1) as f64;
        let queue = self.workers.entry(worker.id()).or_default();
        let priority = queue.clock + frequency * cost / size;
        queue.entries.push(Entry { priority, idled: self.idled, instance: instance.id() });
        if queue.entries.len() > 2 * worker.evictable_instances() as usize + MAX_OUTDATED {
            queue.entries.retain(|entry| is_valid(view, &self.instances, entry));
        }
    }

    fn on_gone(&mut self, instance: InstanceId) {
        let Some(Standing { function, .. }) = self.instances.remove(&instance) else { return };
        if let Some(uses) = self.functions.get_mut(&function) {
            uses.instances -= 1;
            if uses.instances == 0 {
                self.functions.remove(&function);
            }
        }
    }
}
