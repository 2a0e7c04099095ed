//! The state of functions, instances and workers, with counters that every change keeps exact.
//!
//! Everything is in slots; the maps from names to slots serve for look-ups alone, so
//! that no order depends on them. An instance's name holds its slot.

pub(crate) mod function;
mod index;
pub(crate) mod instance;
pub(crate) mod list;
pub(crate) mod outlook;
pub(crate) mod rooms;
pub(crate) mod slots;
pub(crate) mod statistics;
pub(crate) mod timer;
mod transitions;
mod waiting;
pub(crate) mod worker;

use std::collections::BTreeSet;
use std::hint::black_box;

pub(crate) use function::{Function, Key, Request};
use index::Index;
pub(crate) use instance::{Extra, Instance, Size};
pub use instance::{Phase, Volume};
use rooms::Rooms;
use slots::Slots;
pub(crate) use transitions::count_phase;
pub(crate) use waiting::{QUEUES, queue_of};
pub(crate) use worker::Worker;

use crate::{Capacity, FunctionId, FunctionSettings, InstanceId, Nanos, Parameters, WorkerId};

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

/// The bits of an instance's name that hold its slot. The number of the start is above them, so that
/// names are unique and in the order of starts.
const SLOT_BITS: u32 = 24;

/// The slot in an instance's name, whether it is known or not.
pub(crate) fn slot_of(id: InstanceId) -> usize {
    (id.0 & ((1 << SLOT_BITS) - 1)) as usize
}

/// All that the scheduler knows.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) now: Nanos,
    pub(crate) parameters: Parameters,
    /// Whether instances take up what is reserved for them alone.
    pub(crate) reserves_only: bool,
    /// Whether what is expected of workers is kept up to date.
    pub(crate) expects: bool,
    pub(crate) functions: Slots<Function>,
    pub(crate) instances: Slots<Instance>,
    /// By the instances' slots.
    pub(crate) extras: Vec<Extra>,
    /// The slots of their functions, likewise; see [`Self::read_ahead`].
    functions_of: Vec<u32>,
    pub(crate) workers: Slots<Worker>,
    /// Requests that the workers' instances serve or are being started for, by slot: placements compare
    /// all workers by them.
    pub(crate) worker_loads: Vec<u32>,
    /// Room on the workers once idle instances are evicted, and once those are gone, too, that are being
    /// preempted.
    pub(crate) after_eviction: Rooms,
    pub(crate) after_preemption: Rooms,
    /// What may still be expected of batch work on the workers, likewise.
    pub(crate) spare: Rooms,
    /// CPU of all workers, and what instances use of it by their samples, in micro-vCPU.
    pub(crate) cpu: u128,
    pub(crate) used_cpu: u128,
    /// Changes whenever a worker joins, leaves or has another capacity.
    pub(crate) cluster_version: u64,
    functions_by_id: Index,
    /// The workers' slots, by id.
    workers_by_id: Vec<(WorkerId, usize)>,
    /// Functions whose backlog waits for others, by the key of its first request.
    queues: [BTreeSet<(Key, usize)>; QUEUES],
    /// Functions that wait for room to start an instance, likewise.
    parked: BTreeSet<(Key, usize)>,
    pub(crate) in_flight: u32,
    /// Of these, those that could wait when they arrived.
    pub(crate) could_wait_in_flight: u32,
    /// Instances that are never removed for being idle.
    pub(crate) kept: u32,
    /// Instances on the account of hints.
    pub(crate) on_hint: u32,
    /// Requests that may be in flight on all workers together.
    pub(crate) limit: u64,
    pub(crate) shutting_down: bool,
    counts: Counts,
    last_start: u64,
    last_arrival: u64,
}

/// How many instances of all functions are kept ready, however many they are to have, where so many
/// requests may be in flight.
#[must_use]
pub fn most_kept(limit: u64) -> u64 {
    nine_tenths(limit)
}

/// So many places are left to some when others are to find one, too; at least one is, of several.
pub(crate) fn nine_tenths(limit: u64) -> u64 {
    if limit > 1 { limit - limit.div_ceil(10) } else { limit }
}

impl State {
    pub(crate) fn new(parameters: Parameters, reserves_only: bool, expects: bool) -> Self {
        Self { parameters, reserves_only, expects, ..Self::default() }
    }

    pub(crate) fn function(&self, id: FunctionId) -> Option<usize> {
        self.functions_by_id.get(id)
    }

    /// All functions' slots, in the same order in every run.
    pub(crate) fn functions(&self) -> impl Iterator<Item = usize> {
        self.functions_by_id.slots()
    }

    pub(crate) fn instance(&self, id: InstanceId) -> Option<usize> {
        let slot = slot_of(id);
        let is_known = self.instances.get(slot).is_some_and(|instance| instance.id == id);
        // Starts are numbered from 1, and what is in free slots has no number.
        (is_known && id.0 >> SLOT_BITS > 0).then_some(slot)
    }

    /// Has the memory of the instance's function be read while that of the instance is, which says what
    /// its function is, too, but later.
    pub(crate) fn read_ahead(&self, id: InstanceId) {
        let slot = slot_of(id);
        let function = self.functions_of.get(slot);
        if let Some(function) = function.and_then(|slot| self.functions.get(*slot as usize)) {
            black_box(function.settings.qos);
            black_box(function.statistics.arrivals);
        }
    }

    pub(crate) fn worker(&self, id: WorkerId) -> Option<usize> {
        let index = self.workers_by_id.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.workers_by_id[index].1)
    }

    /// All workers' slots, by id.
    pub(crate) fn workers(&self) -> impl Iterator<Item = usize> {
        self.workers_by_id.iter().map(|(_, slot)| *slot)
    }

    pub(crate) fn add_worker(&mut self, id: WorkerId, capacity: Capacity) {
        let slot = self.workers.insert(Worker::new(id, Capacity::NONE));
        self.worker_loads.resize(self.worker_loads.len().max(slot + 1), 0);
        self.worker_loads[slot] = 0;
        self.set_capacity(slot, capacity);
        self.workers_by_id.push((id, slot));
        self.workers_by_id.sort_unstable();
    }

    /// Hides a worker, so that it takes no further instances, until its slot is free for another.
    pub(crate) fn hide_worker(&mut self, id: WorkerId) -> Option<usize> {
        let slot = self.worker(id)?;
        self.limit -= u64::from(self.workers[slot].capacity.max_instances);
        self.set_capacity(slot, Capacity::NONE);
        self.workers_by_id.retain(|(known, _)| *known != id);
        Some(slot)
    }

    /// Frees the slot of a hidden worker that has no instances left.
    pub(crate) fn free_worker(&mut self, slot: usize) {
        self.workers.remove(slot);
        self.worker_loads[slot] = u32::MAX;
    }

    /// Takes note that there may be more room on a worker than before.
    #[inline]
    pub(crate) fn on_room(&mut self, slot: usize) {
        let worker = &self.workers[slot];
        self.after_eviction.raise(slot, || worker.room_after_eviction());
        self.after_preemption.raise(slot, || worker.room_after_preemption());
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn add_function(&mut self, function: Function) -> usize {
        let id = function.extra.id;
        let slot = self.functions.insert(function);
        self.functions_by_id.insert(id, slot);
        self.expect_anew(slot);
        slot
    }

    /// Drops a deleted function of which nothing is left.
    #[inline]
    pub(crate) fn forget(&mut self, slot: usize) {
        if self.functions[slot].deleted {
            self.forget_deleted(slot);
        }
    }

    fn forget_deleted(&mut self, slot: usize) {
        let function = &self.functions[slot];
        if function.extra.members.is_empty()
            && function.in_flight == 0
            && function.extra.backlog.is_empty()
        {
            self.unpark(slot);
            let function = self.functions.remove(slot);
            self.functions_by_id.remove(function.extra.id);
        }
    }

    /// Whether one more instance of the function is to be kept ready. All that are kept take up nine
    /// tenths of the places at most: the others are for functions that have none.
    pub(crate) fn may_keep_more(&self, function: usize) -> bool {
        self.functions[function].may_keep_more(self.kept, self.limit)
    }

    /// Keeps an instance, which is not linked to its worker, ready, or does not any more.
    pub(crate) fn set_kept(&mut self, slot: usize, kept: bool) {
        let instance = &mut self.instances[slot];
        let function = &mut self.functions[instance.function()];
        match (instance.kept, kept) {
            (false, true) => {
                function.kept += 1;
                self.kept += 1;
            }
            (true, false) => {
                function.kept -= 1;
                self.kept -= 1;
            }
            _ => {}
        }
        instance.kept = kept;
    }

    /// Puts an instance, which is not linked or idle, on the account of hints.
    pub(crate) fn hold(&mut self, slot: usize) {
        let instance = &mut self.instances[slot];
        if !std::mem::replace(&mut instance.on_hint, true) {
            self.functions[instance.function()].extra.on_hint += 1;
            self.on_hint += 1;
        }
    }

    /// Takes an instance, which is not linked or does not start, off the account of hints.
    #[inline]
    pub(crate) fn release(&mut self, slot: usize) {
        let instance = &mut self.instances[slot];
        if std::mem::take(&mut instance.on_hint) {
            self.functions[instance.function()].extra.on_hint -= 1;
            self.on_hint -= 1;
        }
    }

    /// An instance on a worker that is there on the account of hints and may go.
    pub(crate) fn first_held(&self, worker: usize) -> Option<usize> {
        if self.on_hint == 0 {
            return None;
        }
        let mut members = self.workers[worker].members.iter().map(|slot| *slot as usize);
        members.find(|slot| {
            let instance = &self.instances[*slot];
            instance.on_hint && instance.is_evictable() || self.is_abandonable(*slot)
        })
    }

    /// Whether an instance is being started for a hint alone, and may be given up.
    pub(crate) fn is_abandonable(&self, slot: usize) -> bool {
        let instance = &self.instances[slot];
        instance.on_hint
            && instance.phase == Phase::Starting
            && instance.retiring.is_none()
            && self.extras[slot].bound.is_empty()
    }

    /// Gives the function other settings; its instances keep their sizes.
    pub(crate) fn set_settings(&mut self, slot: usize, settings: FunctionSettings) {
        let function = &mut self.functions[slot];
        let size = Size::new(&function.settings, self.reserves_only);
        if size != Size::new(&settings, self.reserves_only) {
            for member in &function.extra.members {
                let member = *member as usize;
                self.instances[member].has_own_size = true;
                self.extras[member].size.get_or_insert_with(|| Box::new(size));
            }
        }
        function.settings = settings;
        self.expect_anew(slot);
    }

    /// The size of an instance.
    pub(crate) fn size(&self, slot: usize) -> Size {
        let instance = &self.instances[slot];
        if instance.has_own_size
            && let Some(size) = &self.extras[slot].size
        {
            return **size;
        }
        self.size_of(instance.function())
    }

    /// The size of the function's instances that are started now.
    pub(crate) fn size_of(&self, function: usize) -> Size {
        self.size_of_settings(&self.functions[function].settings)
    }

    /// The size of instances that are started with these settings.
    pub(crate) fn size_of_settings(&self, settings: &FunctionSettings) -> Size {
        Size::new(settings, self.reserves_only)
    }

    /// Numbers the arrivals.
    pub(crate) fn next_arrival(&mut self) -> u64 {
        self.last_arrival += 1;
        self.last_arrival
    }

    /// Adds an instance under the next name; it is not linked.
    pub(crate) fn add_instance(&mut self, mut instance: Instance) -> usize {
        let slot = self.instances.next_slot();
        assert!(slot < 1 << SLOT_BITS, "more instances at once than names can tell apart");
        self.last_start += 1;
        instance.id = InstanceId(self.last_start << SLOT_BITS | slot as u64);
        if self.extras.len() <= slot {
            self.extras.resize_with(slot + 1, Extra::default);
            self.functions_of.resize(slot + 1, 0);
        }
        self.functions_of[slot] = instance.function;
        let members = &mut self.functions[instance.function()].extra.members;
        self.extras[slot].function_index = members.len() as u32;
        members.push(slot as u32);
        let members = &mut self.workers[instance.worker()].members;
        self.extras[slot].worker_index = members.len() as u32;
        members.push(slot as u32);
        self.instances.insert(instance)
    }

    /// Removes an instance that is linked.
    pub(crate) fn remove_instance(&mut self, slot: usize) -> Instance {
        self.unlink(slot);
        self.release(slot);
        let instance = self.instances.remove(slot);
        if instance.takes_room() {
            self.on_room(instance.worker());
        }
        let extra = std::mem::take(&mut self.extras[slot]);
        let function = &mut self.functions[instance.function()];
        function.kept -= u32::from(instance.kept);
        self.kept -= u32::from(instance.kept);
        function.extra.members.swap_remove(extra.function_index as usize);
        if let Some(&moved) = function.extra.members.get(extra.function_index as usize) {
            self.extras[moved as usize].function_index = extra.function_index;
        }
        let worker = &mut self.workers[instance.worker()];
        worker.used -= extra.used;
        self.used_cpu -= u128::from(extra.used.cpu);
        worker.members.swap_remove(extra.worker_index as usize);
        if let Some(&moved) = worker.members.get(extra.worker_index as usize) {
            self.extras[moved as usize].worker_index = extra.worker_index;
        }
        instance
    }
}
