//! A worker as policies see it.

use super::{FunctionView, InstanceView};
use crate::leopard;
use crate::state::outlook::Outlook;
use crate::state::rooms::Room;
use crate::state::{State, Worker};
use crate::{Capacity, Resources, WorkerId};

/// A worker, what it has and what is taken of it.
#[derive(Debug, Clone, Copy)]
pub struct WorkerView<'a> {
    pub(super) state: &'a State,
    pub(super) slot: usize,
}

impl<'a> WorkerView<'a> {
    pub(super) fn new(state: &'a State, slot: usize) -> Self {
        Self { state, slot }
    }

    /// Read only when asked for: placements rule most workers out by their loads alone.
    pub(super) fn worker(&self) -> &'a Worker {
        &self.state.workers[self.slot]
    }

    /// What is expected of what it serves.
    pub(crate) fn outlook(&self) -> &'a Outlook {
        #[cfg(debug_assertions)]
        assert_eq!(self.worker().outlook, self.state.sum_up(self.slot), "what is kept is the sum");
        &self.worker().outlook
    }

    /// What may still be expected of batch work without a reservation.
    pub(crate) fn spare(&self) -> Room {
        self.worker().spare(self.state.parameters.cpu_overcommit)
    }

    /// Idle instances on it that may be evicted.
    pub(crate) fn evictable_instances(&self) -> u32 {
        self.worker().evictable
    }

    /// Its name.
    pub fn id(&self) -> WorkerId {
        self.worker().id
    }

    /// What it has room for.
    pub fn capacity(&self) -> Capacity {
        self.worker().capacity
    }

    /// Instances on it, without those that are being stopped.
    pub fn instances(&self) -> u32 {
        self.worker().instances
    }

    /// Requests that its instances serve or are being started for.
    pub fn in_flight(&self) -> u32 {
        self.state.worker_loads[self.slot]
    }

    /// What its instances take up, without those that are being stopped.
    pub fn allocated(&self) -> Resources {
        self.worker().allocated
    }

    /// The part of it that idle instances hold which may be evicted.
    pub fn evictable(&self) -> Resources {
        self.worker().evictable_resources
    }

    /// The part of it that active instances hold which may be preempted.
    pub fn preemptible(&self) -> Resources {
        self.worker().preemptible
    }

    /// The part of it that instances hold which are being preempted.
    pub fn preempting(&self) -> Resources {
        self.worker().preempting_resources
    }

    /// What starting and active instances have for themselves.
    pub fn reserved(&self) -> Resources {
        self.worker().reserved
    }

    /// What its instances use, by their last samples.
    pub fn used(&self) -> Resources {
        self.worker().used
    }

    /// Whether an instance of this size fits beside all others.
    pub fn has_room(&self, allocation: Resources) -> bool {
        self.worker().room().fits(allocation)
    }

    /// Whether an instance of this size fits once idle ones are evicted.
    pub fn has_room_after_eviction(&self, allocation: Resources) -> bool {
        self.worker().room_after_eviction().fits(allocation)
    }

    /// Whether an instance of this size fits once idle ones are evicted and those that are being
    /// preempted are gone.
    pub fn has_room_after_preemption(&self, allocation: Resources) -> bool {
        self.worker().room_after_preemption().fits(allocation)
    }

    /// Whether it takes a new instance of the function: there is room once idle ones are evicted; and
    /// where only what is reserved takes up room, what is not is expected to do well.
    pub fn takes(&self, function: &FunctionView<'_>) -> bool {
        self.has_room_after_eviction(function.room()) && self.takes_again(function)
    }

    /// Whether it takes another request on an instance of the function that it has.
    pub fn takes_again(&self, function: &FunctionView<'_>) -> bool {
        !self.state.reserves_only || leopard::takes(self, function)
    }

    /// Whether an instance on it was preempted, and no invocation has ended since.
    pub fn is_pressed(&self) -> bool {
        self.worker().is_pressed
    }

    /// All its instances that take up room, in no order that means anything, but the same in every run.
    pub fn members(&self) -> impl Iterator<Item = InstanceView<'a>> + use<'a> {
        let state = self.state;
        let slots = self.worker().members.iter().map(|slot| *slot as usize);
        slots
            .filter(|slot| state.instances[*slot].takes_room())
            .map(move |slot| InstanceView::new(state, slot))
    }

    /// The idle instances that may be evicted, the longest idle first.
    pub fn idle(&self) -> impl DoubleEndedIterator<Item = InstanceView<'a>> + use<'a> {
        let state = self.state;
        let slots = self.worker().idle.iter(&state.instances);
        slots.map(move |slot| InstanceView::new(state, slot))
    }

    /// The active instances that may be preempted; the one whose requests or settings changed last
    /// comes last.
    pub fn active(&self) -> impl DoubleEndedIterator<Item = InstanceView<'a>> + use<'a> {
        let state = self.state;
        let slots = self.worker().active.iter(&state.instances);
        slots.map(move |slot| InstanceView::new(state, slot))
    }
}
