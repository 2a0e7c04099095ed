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
use super::consistent_hashing::distance;
use crate::leopard::{self, millionths};
use crate::{FunctionView, Qos, Random, View, WorkerId, WorkerView};

/// Places by score.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leopard;

/// Makes the policy.
pub fn policy() -> Box<dyn Placement> {
    Box::new(Leopard)
}

/// What the function reserves against what the worker has free, in millionths.
fn align(worker: &WorkerView<'_>, function: &FunctionView<'_>) -> u64 {
    let capacity = worker.capacity().resources;
    let (needs, free) = (function.settings().reservation(), capacity - worker.reserved());
    let product = |need, free, whole| millionths(need, whole) * millionths(free, whole) / 1_000_000;
    product(needs.cpu, free.cpu, capacity.cpu) + product(needs.memory, free.memory, capacity.memory)
}

impl Placement for Leopard {
    fn reads_samples(&self) -> bool {
        true
    }

    fn place(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<WorkerId> {
        let parameters = view.parameters();
        let mut workers: Vec<_> = view.workers().collect();
        let (mut used, mut capacity) = (0, 0);
        for worker in &workers {
            used += u128::from(worker.used().cpu);
            capacity += u128::from(worker.capacity().resources.cpu);
        }
        let takes = |worker: &&WorkerView<'_>| worker.takes(function);
        let best = if used * 100 >= capacity * u128::from(parameters.high_load) {
            let load = |worker: &&WorkerView<'_>| match function.settings().qos {
                Qos::Interactive => leopard::load(worker, |it| it.settings().reservation()),
                Qos::Batch => leopard::load(worker, leopard::expected),
            };
            workers.iter().filter(takes).min_by_key(|worker| (load(worker), worker.id()))
        } else {
            workers.sort_by_key(|worker| distance(function.id(), worker.id()));
            let all = workers.len() as u64;
            let weight = u64::from(parameters.locality_weight);
            let score = |position: usize, worker: &WorkerView<'_>| {
                let locality = millionths(all - 1 - position as u64, (all - 1).max(1));
                align(worker, function) * 100 + weight * locality
            };
            let scored = workers.iter().enumerate().filter(|(_, worker)| takes(worker));
            // Of equals the first in the order.
            scored.rev().max_by_key(|(position, worker)| score(*position, worker)).map(|it| it.1)
        };
        best.map(WorkerView::id)
    }
}
