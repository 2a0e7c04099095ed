//! The state of functions, instances and workers, with counters that every change keeps exact.
//!
//! Everything is in slabs, found by slot; the maps from names to slots serve for look-ups alone, so
//! that no order depends on them.

pub(crate) mod function;
pub(crate) mod instance;
pub(crate) mod queue;
pub(crate) mod statistics;
pub(crate) mod worker;

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use slab::Slab;

pub(crate) use function::{Function, Key, Request};
pub(crate) use instance::Instance;
pub use instance::Phase;
use queue::Queue;
pub(crate) use worker::Worker;

use crate::admission::WaitFor;
use crate::{FunctionId, InstanceId, Nanos, Pause, Qos, WorkerId};

/// How many instances do what, and how many requests wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances that are being started.
    pub starting: usize,
    /// Instances that serve, also those that are to be preempted.
    pub busy: usize,
    /// Instances that serve nothing, paused ones included.
    pub idle: usize,
    /// Idle instances that are frozen.
    pub frozen: usize,
    /// Idle instances that are scaled down.
    pub scaled_down: usize,
    /// Instances that are being stopped.
    pub stopping: usize,
    /// Requests that are admitted and wait for an instance.
    pub waiting: usize,
    /// Requests that wait to be admitted.
    pub backlog: usize,
}

/// Queues of functions whose first waiting request waits for others than its own function.
const QUEUES: usize = 3;

/// All that the scheduler knows.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) now: Nanos,
    pub(crate) functions: Slab<Function>,
    pub(crate) instances: Slab<Instance>,
    pub(crate) workers: Slab<Worker>,
    functions_by_id: FxHashMap<FunctionId, usize>,
    instances_by_id: FxHashMap<InstanceId, usize>,
    /// By id.
    pub(crate) workers_by_id: Vec<(WorkerId, usize)>,
    /// Functions whose backlog waits for others, by the key of its first request.
    queues: [BTreeSet<(Key, usize)>; QUEUES],
    /// Functions that wait for room to start an instance, likewise.
    parked: BTreeSet<(Key, usize)>,
    pub(crate) in_flight: u32,
    /// Requests that may be in flight on all workers together.
    pub(crate) limit: u64,
    pub(crate) shutting_down: bool,
    counts: Counts,
    last_instance: u64,
    last_arrival: u64,
}

impl State {
    pub(crate) fn function(&self, id: FunctionId) -> Option<usize> {
        self.functions_by_id.get(&id).copied()
    }

    pub(crate) fn instance(&self, id: InstanceId) -> Option<usize> {
        self.instances_by_id.get(&id).copied()
    }

    pub(crate) fn worker(&self, id: WorkerId) -> Option<usize> {
        let index = self.workers_by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.workers_by_id[index].1)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn add_function(&mut self, function: Function) -> usize {
        let id = function.id;
        let slot = self.functions.insert(function);
        self.functions_by_id.insert(id, slot);
        slot
    }

    /// Drops a deleted function of which nothing is left.
    pub(crate) fn forget(&mut self, slot: usize) {
        let Some(function) = self.functions.get(slot) else { return };
        if function.deleted
            && function.members.is_empty()
            && function.in_flight == 0
            && function.backlog.is_empty()
        {
            self.unpark(slot);
            let function = self.functions.remove(slot);
            self.functions_by_id.remove(&function.id);
        }
    }

    /// Numbers the arrivals.
    pub(crate) fn next_arrival(&mut self) -> u64 {
        self.last_arrival += 1;
        self.last_arrival
    }

    /// Adds an instance under the next name.
    pub(crate) fn add_instance(&mut self, mut instance: Instance) -> usize {
        self.last_instance += 1;
        instance.id = InstanceId(self.last_instance);
        let members = &mut self.functions[instance.function].members;
        instance.function_index = members.len();
        members.push(self.instances.vacant_key());
        let members = &mut self.workers[instance.worker].members;
        instance.worker_index = members.len();
        members.push(self.instances.vacant_key());
        let id = instance.id;
        let slot = self.instances.insert(instance);
        self.instances_by_id.insert(id, slot);
        self.link(slot);
        slot
    }

    /// Removes an instance that is linked.
    pub(crate) fn remove_instance(&mut self, slot: usize) -> Instance {
        self.unlink(slot);
        let instance = self.instances.remove(slot);
        self.instances_by_id.remove(&instance.id);
        let function = &mut self.functions[instance.function];
        function.kept -= u32::from(instance.kept);
        function.members.swap_remove(instance.function_index);
        if let Some(&moved) = function.members.get(instance.function_index) {
            self.instances[moved].function_index = instance.function_index;
        }
        let worker = &mut self.workers[instance.worker];
        worker.used -= instance.used;
        worker.members.swap_remove(instance.worker_index);
        if let Some(&moved) = worker.members.get(instance.worker_index) {
            self.instances[moved].worker_index = instance.worker_index;
        }
        instance
    }

    /// Adds the instance to every queue and counter that its fields belong to.
    pub(crate) fn link(&mut self, slot: usize) {
        let instance = &mut self.instances[slot];
        let function = &mut self.functions[instance.function];
        if instance.is_available() {
            instance.function_ticket = function.available.push(slot);
        } else if instance.is_spare() {
            function.spare.insert(instance.id, slot);
        }
        self.count_function(slot, 1);
        self.link_worker(slot);
    }

    /// Takes the instance out of every queue and counter, before its fields change.
    pub(crate) fn unlink(&mut self, slot: usize) {
        let instance = &self.instances[slot];
        let function = &mut self.functions[instance.function];
        if instance.is_available() {
            function.available.remove(instance.function_ticket);
            if function.available.is_sparse() {
                let instances = &mut self.instances;
                function.available.compact(|slot, ticket| {
                    instances[slot].function_ticket = ticket;
                });
            }
        } else if instance.is_spare() {
            function.spare.remove(&instance.id);
        }
        self.count_function(slot, -1);
        self.unlink_worker(slot);
    }

    fn count_function(&mut self, slot: usize, sign: i32) {
        let instance = &self.instances[slot];
        let function = &mut self.functions[instance.function];
        let step = |count: &mut usize| *count = count.wrapping_add_signed(sign as isize);
        let retiring = instance.retiring.is_some();
        let of_function = match instance.phase {
            Phase::Starting => {
                step(&mut self.counts.starting);
                if retiring {
                    let bound = sign * instance.bound.len() as i32;
                    function.bound_to_retiring =
                        function.bound_to_retiring.wrapping_add_signed(bound);
                }
                Some(&mut function.starting)
            }
            Phase::Idle => {
                step(&mut self.counts.idle);
                match instance.paused {
                    Some(Pause::Freeze) => step(&mut self.counts.frozen),
                    Some(Pause::ScaleDown) => step(&mut self.counts.scaled_down),
                    None => {}
                }
                Some(&mut function.idle)
            }
            Phase::Active => {
                step(&mut self.counts.busy);
                Some(&mut function.active)
            }
            Phase::Preempting => {
                step(&mut self.counts.busy);
                None
            }
            Phase::Stopping => {
                step(&mut self.counts.stopping);
                None
            }
        };
        if let Some(count) = of_function.filter(|_| !retiring) {
            *count = count.wrapping_add_signed(sign);
            let sign = i64::from(sign);
            let slots = sign * i64::from(instance.concurrency);
            function.slots = function.slots.wrapping_add_signed(slots);
            let serving = sign * instance.serving.len() as i64;
            function.serving = function.serving.wrapping_add_signed(serving);
        }
    }

    pub(crate) fn link_worker(&mut self, slot: usize) {
        let instance = &mut self.instances[slot];
        let worker = &mut self.workers[instance.worker];
        worker.in_flight += (instance.serving.len() + instance.bound.len()) as u32;
        worker.freeing = worker.freeing.saturating_add(instance.freeing());
        if !instance.takes_room() {
            return;
        }
        worker.instances += 1;
        worker.allocated += instance.allocation;
        match instance.phase {
            Phase::Idle if !instance.kept => {
                worker.evictable += 1;
                worker.evictable_resources += instance.allocation;
                instance.worker_ticket = worker.idle.push(slot);
                return;
            }
            Phase::Idle | Phase::Stopping => return,
            Phase::Preempting => {
                worker.preempting += 1;
                worker.preempting_resources += instance.allocation;
            }
            Phase::Active if instance.preemptible => {
                worker.preemptible += instance.allocation;
                instance.worker_ticket = worker.active.push(slot);
            }
            Phase::Starting | Phase::Active => {}
        }
        worker.reserved += instance.reservation;
    }

    pub(crate) fn unlink_worker(&mut self, slot: usize) {
        let instance = &self.instances[slot];
        let worker = &mut self.workers[instance.worker];
        worker.in_flight -= (instance.serving.len() + instance.bound.len()) as u32;
        worker.freeing = worker.freeing.saturating_sub(instance.freeing());
        if !instance.takes_room() {
            return;
        }
        worker.instances -= 1;
        worker.allocated -= instance.allocation;
        match instance.phase {
            Phase::Idle if !instance.kept => {
                worker.evictable -= 1;
                worker.evictable_resources -= instance.allocation;
                leave(&mut worker.idle, slot, &mut self.instances);
                return;
            }
            Phase::Idle | Phase::Stopping => return,
            Phase::Preempting => {
                worker.preempting -= 1;
                worker.preempting_resources -= instance.allocation;
            }
            Phase::Active if instance.preemptible => {
                worker.preemptible -= instance.allocation;
                worker.reserved -= instance.reservation;
                leave(&mut worker.active, slot, &mut self.instances);
                return;
            }
            Phase::Starting | Phase::Active => {}
        }
        worker.reserved -= instance.reservation;
    }

    /// Marks an idle instance as paused; its position in no list changes.
    pub(crate) fn set_paused(&mut self, slot: usize, how: Pause) {
        let instance = &mut self.instances[slot];
        instance.paused = Some(how);
        match how {
            Pause::Freeze => self.counts.frozen += 1,
            Pause::ScaleDown => self.counts.scaled_down += 1,
        }
    }

    /// Puts a request of the function among those that wait to be admitted.
    pub(crate) fn push_backlog(&mut self, slot: usize, request: Request) {
        self.counts.backlog += 1;
        self.functions[slot].backlog.insert(request.key, request);
    }

    /// Takes the first request of the function's backlog.
    pub(crate) fn pop_backlog(&mut self, slot: usize) -> Option<Request> {
        let (_, request) = self.functions[slot].backlog.pop_first()?;
        self.counts.backlog -= 1;
        Some(request)
    }

    pub(crate) fn push_unbound(&mut self, slot: usize, request: Request) {
        self.counts.waiting += 1;
        self.functions[slot].unbound.insert(request.key, request);
    }

    pub(crate) fn pop_unbound(&mut self, slot: usize) -> Option<Request> {
        let (_, request) = self.functions[slot].unbound.pop_first()?;
        self.counts.waiting -= 1;
        Some(request)
    }

    /// Takes a request that waits for a starting instance, whose list of them the caller changes.
    pub(crate) fn take_bound(&mut self, slot: usize, key: Key) -> Option<(Request, usize)> {
        let bound = self.functions[slot].bound.remove(&key)?;
        self.counts.waiting -= 1;
        Some(bound)
    }

    /// Has the first unbound requests wait for this starting instance, as many as it can serve.
    pub(crate) fn bind(&mut self, instance: usize) {
        self.unlink(instance);
        let starting = &mut self.instances[instance];
        let function = &mut self.functions[starting.function];
        while starting.bound.len() < starting.concurrency as usize {
            let Some((key, request)) = function.unbound.pop_first() else { break };
            starting.bound.push(key);
            function.bound.insert(key, (request, instance));
        }
        self.link(instance);
    }

    /// Says what the first request of the function's backlog waits for; None if there is none.
    pub(crate) fn wait_for(&mut self, slot: usize, what: Option<WaitFor>) {
        self.leave_queue(slot);
        let function = &mut self.functions[slot];
        let Some((key, _)) = function.backlog.first_key_value() else { return };
        function.waits_for = what;
        if let Some(queue) = what.and_then(|what| queue_of(what, function.settings.qos)) {
            self.queues[queue].insert((*key, slot));
        }
    }

    /// Takes the function out of the queue that it is in; before its backlog or settings change.
    pub(crate) fn leave_queue(&mut self, slot: usize) {
        let function = &mut self.functions[slot];
        let queue =
            function.waits_for.take().and_then(|what| queue_of(what, function.settings.qos));
        if let (Some(queue), Some((key, _))) = (queue, function.backlog.first_key_value()) {
            self.queues[queue].remove(&(*key, slot));
        }
    }

    /// The function that is first in a queue, and its request's key.
    pub(crate) fn first_in_queue(&self, queue: usize) -> Option<(Key, usize)> {
        self.queues[queue].first().copied()
    }

    /// The queues' numbers.
    pub(crate) fn queues(&self) -> std::ops::Range<usize> {
        0..QUEUES
    }

    /// What a request of this key has to wait for because an earlier one does.
    pub(crate) fn earlier_waits_for(&self, key: Key, qos: Qos) -> Option<WaitFor> {
        [WaitFor::Cluster, WaitFor::Class].into_iter().find(|what| {
            let first = queue_of(*what, qos).and_then(|queue| self.first_in_queue(queue));
            first.is_some_and(|(first, _)| first < key)
        })
    }

    /// Has the function wait for room to start an instance.
    pub(crate) fn park(&mut self, slot: usize) {
        self.unpark(slot);
        let key = self.functions[slot].start_key();
        self.functions[slot].parked = Some(key);
        self.parked.insert((key, slot));
    }

    /// Takes the function out of those that wait for room; whether it was one of them.
    pub(crate) fn unpark(&mut self, slot: usize) -> bool {
        match self.functions[slot].parked.take() {
            Some(key) => self.parked.remove(&(key, slot)),
            None => false,
        }
    }

    /// The function that is first among those that wait for room.
    pub(crate) fn first_parked(&self) -> Option<(Key, usize)> {
        self.parked.first().copied()
    }
}

/// Takes an instance out of its worker's queue.
fn leave(queue: &mut Queue, slot: usize, instances: &mut Slab<Instance>) {
    queue.remove(instances[slot].worker_ticket);
    if queue.is_sparse() {
        queue.compact(|slot, ticket| instances[slot].worker_ticket = ticket);
    }
}

/// The queue for what a request of this class waits for.
fn queue_of(what: WaitFor, qos: Qos) -> Option<usize> {
    match (what, qos) {
        (WaitFor::Function, _) => None,
        (WaitFor::Cluster, _) => Some(0),
        (WaitFor::Class, Qos::Interactive) => Some(1),
        (WaitFor::Class, Qos::Batch) => Some(2),
    }
}
