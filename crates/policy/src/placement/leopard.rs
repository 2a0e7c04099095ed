//! Leopard's load balancer (section 4.3.4): alignment and locality while the load is low, and when it is
//! high the least that remains to be done.
//!
//! Low: the largest `align + locality_weight x locality`, where `align` is the dot product of what the
//! function reserves and what the worker has that is reserved for no one, each as a share of the worker's
//! capacity; `locality` falls evenly from 1 for the function's home worker in the order of
//! `consistent-hashing` to 0 for the last one. High, which it is from `high_load` percent of the workers'
//! CPUs in use on: the smallest load, the sum of `mean duration x resources` over invocations, by what
//! they reserve for an interactive function, by what they use on average for a batch function. Only
//! workers count that take the function (see `leopard` admission).
//!
//! The paper sums over the requests that wait on a worker. Here they wait for all workers together, and
//! the sum is over those that a worker serves or starts instances for. The paper gives neither the weight
//! nor the switch, nor units.

use super::Placement;
use super::consistent_hashing::Orders;
use crate::leopard::millionths;
use crate::{FunctionView, Qos, Random, Resources, View, WorkerId, WorkerView};

/// Places by score.
#[derive(Debug, Default)]
pub struct Leopard {
    orders: Orders,
    /// The least that a worker has of each, in a cluster of this version.
    smallest: Resources,
    version: u64,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Placement> {
    Box::new(Leopard::default())
}

/// What the function reserves against what the worker has free, in millionths.
fn align(worker: &WorkerView<'_>, function: &FunctionView<'_>) -> u64 {
    let capacity = worker.capacity().resources;
    let (needs, free) = (function.settings().reservation(), capacity - worker.reserved());
    let product = |need, free, whole| millionths(need, whole) * millionths(free, whole) / 1_000_000;
    product(needs.cpu, free.cpu, capacity.cpu) + product(needs.memory, free.memory, capacity.memory)
}

impl Leopard {
    /// The least CPU and the least memory of a worker.
    fn smallest(&mut self, view: View<'_>) -> Resources {
        if self.version != view.cluster_version() {
            self.version = view.cluster_version();
            let least = |a: Resources, b: Resources| Resources {
                cpu: a.cpu.min(b.cpu),
                memory: a.memory.min(b.memory),
            };
            let capacities = view.workers().map(|worker| worker.capacity().resources);
            self.smallest = capacities.fold(Resources::UNBOUNDED, least);
        }
        self.smallest
    }

    /// The worker with the largest score; of equals the first in the function's order.
    fn by_score<'a>(
        &mut self,
        view: View<'a>,
        function: &FunctionView<'_>,
    ) -> Option<WorkerView<'a>> {
        let (smallest, needs) = (self.smallest(view), function.settings().reservation());
        // A worker with nothing reserved aligns best.
        let best_align =
            millionths(needs.cpu, smallest.cpu) + millionths(needs.memory, smallest.memory);
        let order = self.orders.of(view, function.id());
        let last = (order.len() as u64).saturating_sub(1);
        let weight = u64::from(view.parameters().locality_weight);
        let mut best: Option<(u64, WorkerView<'_>)> = None;
        for (position, slot) in order.iter().enumerate() {
            let locality = weight * millionths(last - position as u64, last.max(1));
            let score = best.map(|(score, _)| score);
            if score.is_some_and(|score| score >= best_align * 100 + locality) {
                break;
            }
            let worker = view.worker_at(*slot as usize);
            if !worker.takes(function) {
                continue;
            }
            let mine = align(&worker, function) * 100 + locality;
            if score.is_none_or(|score| mine > score) {
                best = Some((mine, worker));
            }
        }
        best.map(|(_, worker)| worker)
    }
}

impl Placement for Leopard {
    fn reads_samples(&self) -> bool {
        true
    }

    fn reads_expectations(&self) -> bool {
        true
    }

    fn place(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<WorkerId> {
        let high_load = u128::from(view.parameters().high_load);
        let best = if view.used_cpu() * 100 >= view.cpu() * high_load {
            let load = |worker: &WorkerView<'_>| match function.settings().qos {
                Qos::Interactive => worker.outlook().reserved_load,
                Qos::Batch => worker.outlook().expected_load,
            };
            view.takers(function).min_by_key(|worker| (load(worker), worker.id()))
        } else {
            self.by_score(view, function)
        };
        best.map(|worker| worker.id())
    }
}
