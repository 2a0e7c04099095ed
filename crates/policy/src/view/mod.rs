//! What policies see of the state: read only, by function, worker and instance.

mod function;
mod instance;
mod worker;

pub use function::FunctionView;
pub use instance::InstanceView;
pub use worker::WorkerView;

use crate::leopard;
use crate::state::rooms::{Room, Rooms};
use crate::state::{State, Worker};
use crate::{FunctionId, InstanceId, Nanos, Parameters, Resources, WorkerId};

/// The scheduler's state at a moment.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    state: &'a State,
}

impl<'a> View<'a> {
    pub(crate) fn new(state: &'a State) -> Self {
        Self { state }
    }

    /// The time of the event that is being handled.
    pub fn now(&self) -> Nanos {
        self.state.now
    }

    /// What is set for all functions.
    pub fn parameters(&self) -> &'a Parameters {
        &self.state.parameters
    }

    /// Admitted requests that have not ended.
    pub fn in_flight(&self) -> u32 {
        self.state.in_flight
    }

    /// Of these, those that could wait when they arrived (accepted events).
    pub fn could_wait_in_flight(&self) -> u32 {
        self.state.could_wait_in_flight
    }

    /// Requests that may be in flight: the sum of the workers' `max_instances`.
    pub fn limit(&self) -> u64 {
        self.state.limit
    }

    /// Whether one of the workers could hold an instance of this allocation if it were empty; true as
    /// long as there are none. Those that take none any more count as gone.
    pub fn could_ever_hold(&self, allocation: Resources) -> bool {
        let takes = |slot: &usize| self.state.workers[*slot].capacity.max_instances > 0;
        let mut workers = self.state.workers().filter(takes).peekable();
        workers.peek().is_none()
            || workers.any(|slot| self.state.workers[slot].could_hold(allocation))
    }

    /// Whether an interactive request waits for room.
    pub fn is_interactive_waiting(&self) -> bool {
        self.state.is_interactive_waiting()
    }

    /// A function that is known.
    pub fn function(&self, id: FunctionId) -> Option<FunctionView<'a>> {
        self.state.function(id).map(|slot| self.function_at(slot))
    }

    /// All functions, in no order that means anything, but the same in every run.
    pub fn functions(&self) -> impl Iterator<Item = FunctionView<'a>> + use<'a> {
        let state = self.state;
        state.functions().map(move |slot| View::new(state).function_at(slot))
    }

    /// A worker that has joined.
    pub fn worker(&self, id: WorkerId) -> Option<WorkerView<'a>> {
        let state = self.state;
        state.worker(id).map(|slot| WorkerView::new(state, slot))
    }

    /// All workers, by id.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView<'a>> + use<'a> {
        let state = self.state;
        state.workers().map(move |slot| WorkerView::new(state, slot))
    }

    /// CPU of all workers, in micro-vCPU.
    pub fn cpu(&self) -> u128 {
        self.state.cpu
    }

    /// What their instances use of it, by their last samples.
    pub fn used_cpu(&self) -> u128 {
        self.state.used_cpu
    }

    /// Changes whenever a worker joins, leaves or has another capacity.
    pub(crate) fn cluster_version(&self) -> u64 {
        self.state.cluster_version
    }

    /// The slots of all workers, by id.
    pub(crate) fn worker_slots(&self) -> impl Iterator<Item = usize> + use<'a> {
        self.state.workers()
    }

    pub(crate) fn worker_at(&self, slot: usize) -> WorkerView<'a> {
        WorkerView::new(self.state, slot)
    }

    /// The workers that take a new instance of the function, see [`WorkerView::takes`], in no order that
    /// means anything, but the same in every run: quicker than to ask each.
    pub fn takers(
        &self,
        function: &FunctionView<'a>,
    ) -> impl Iterator<Item = WorkerView<'a>> + use<'a> {
        let (state, function) = (self.state, *function);
        let (room, expected) = (function.room(), function.expected().resources);
        let cpu_overcommit = state.parameters.cpu_overcommit;
        // What reserves nothing has room everywhere.
        let is_unreserved = state.reserves_only && leopard::is_unreserved(&function);
        let mut from = 0;
        let workers = std::iter::from_fn(move || {
            let (slots, workers) = (state.worker_loads.len(), &state.workers);
            let slot = if is_unreserved {
                state.spare.find(expected, from, slots, |slot| workers[slot].spare(cpu_overcommit))
            } else {
                let left = |slot: usize| workers[slot].room_after_eviction();
                state.after_eviction.find(room, from, slots, left)
            }?;
            from = slot + 1;
            Some(WorkerView::new(state, slot))
        });
        workers.filter(move |worker| worker.takes(&function))
    }

    /// Of the workers that take instances, those with the fewest requests in flight of all: quicker than
    /// to compare all.
    pub fn least_loaded(&self) -> impl Iterator<Item = WorkerView<'a>> + use<'a> {
        let state = self.state;
        let loads = &state.worker_loads;
        let least = loads.iter().copied().min();
        let mut from = 0;
        let slots = std::iter::from_fn(move || {
            let slot = from + loads[from..].iter().position(|load| Some(*load) == least)?;
            from = slot + 1;
            Some(slot)
        });
        let workers = slots.map(move |slot| WorkerView::new(state, slot));
        workers.filter(|worker| worker.capacity().max_instances > 0)
    }

    /// The workers on which an instance of this size fits once idle ones are evicted, in no order that
    /// means anything, but the same in every run: quicker than to ask each.
    pub fn with_room_after_eviction(
        &self,
        allocation: Resources,
    ) -> impl Iterator<Item = WorkerView<'a>> + use<'a> {
        self.with_room(&self.state.after_eviction, allocation, Worker::room_after_eviction)
    }

    /// The same once, too, those that are being preempted are gone.
    pub fn with_room_after_preemption(
        &self,
        allocation: Resources,
    ) -> impl Iterator<Item = WorkerView<'a>> + use<'a> {
        self.with_room(&self.state.after_preemption, allocation, Worker::room_after_preemption)
    }

    fn with_room(
        self,
        rooms: &'a Rooms,
        allocation: Resources,
        room: impl Fn(&Worker) -> Room,
    ) -> impl Iterator<Item = WorkerView<'a>> {
        let state = self.state;
        let mut from = 0;
        std::iter::from_fn(move || {
            let slots = state.worker_loads.len();
            let room = |slot| room(&state.workers[slot]);
            let slot = rooms.find(allocation, from, slots, room)?;
            from = slot + 1;
            Some(WorkerView::new(state, slot))
        })
    }

    /// An instance that is not reported gone.
    pub fn instance(&self, id: InstanceId) -> Option<InstanceView<'a>> {
        self.state.instance(id).map(|slot| self.instance_at(slot))
    }

    pub(crate) fn function_at(&self, slot: usize) -> FunctionView<'a> {
        FunctionView { state: self.state, function: &self.state.functions[slot] }
    }

    pub(crate) fn instance_at(&self, slot: usize) -> InstanceView<'a> {
        InstanceView::new(self.state, slot)
    }
}
