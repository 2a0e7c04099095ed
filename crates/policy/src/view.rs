//! What policies see of the state: read only, by function, worker and instance.

use crate::leopard::{self, Expected};
use crate::state::outlook::Outlook;
use crate::state::rooms::{Room, Rooms};
use crate::state::{Function, Instance, Phase, State, Worker, count_phase};
use crate::{
    Capacity, Counts, FunctionId, FunctionSettings, InstanceId, Nanos, Parameters, Pause,
    Resources, WorkerId,
};

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

/// A function, its requests and its past.
#[derive(Debug, Clone, Copy)]
pub struct FunctionView<'a> {
    state: &'a State,
    function: &'a Function,
}

impl<'a> FunctionView<'a> {
    /// Its name.
    pub fn id(&self) -> FunctionId {
        self.function.extra.id
    }

    /// What its owner asks for.
    pub fn settings(&self) -> &'a FunctionSettings {
        &self.function.settings
    }

    /// What one more of its instances takes up of a worker's capacity: its allocation, or what is
    /// reserved for it, see [`Admission::reserves_only`](crate::admission::Admission::reserves_only).
    pub fn room(&self) -> Resources {
        self.state.size_of_settings(&self.function.settings).room
    }

    /// Admitted requests that have not ended.
    pub fn in_flight(&self) -> u32 {
        self.function.in_flight
    }

    /// Admitted requests that no instance serves yet.
    pub fn waiting(&self) -> usize {
        self.function.waiting() as usize
    }

    /// Those of them that do not wait for an instance that retires.
    pub fn waiting_for_new(&self) -> usize {
        (self.function.waiting() - self.function.bound_to_retiring) as usize
    }

    /// Requests that wait to be admitted.
    pub fn backlog(&self) -> usize {
        self.function.extra.backlog.len()
    }

    /// Connections to it that have asked for nothing yet, see
    /// [`Event::ConnectionBegan`](crate::Event::ConnectionBegan).
    pub fn connecting(&self) -> u32 {
        self.function.extra.connecting
    }

    /// Starting instances. Like the next two, without those that retire.
    pub fn starting(&self) -> u32 {
        self.function.starting
    }

    /// Instances that serve nothing.
    pub fn idle(&self) -> u32 {
        self.function.idle
    }

    /// Instances that serve.
    pub fn active(&self) -> u32 {
        self.function.active
    }

    /// Instances that do not retire.
    pub fn instances(&self) -> u32 {
        self.function.instances()
    }

    /// How many of its instances do what, retiring ones included, and how many of its requests wait.
    pub fn counts(&self) -> Counts {
        let mut counts =
            Counts { waiting: self.waiting(), backlog: self.backlog(), ..Counts::default() };
        for slot in &self.function.extra.members {
            count_phase(&mut counts, &self.state.instances[*slot as usize], 1);
        }
        counts
    }

    /// Requests that its instances serve.
    pub fn serving(&self) -> u32 {
        self.function.serving
    }

    /// Further requests that its instances, starting ones included, can take.
    pub fn free_slots(&self) -> u64 {
        let function = self.function;
        function
            .capacity
            .saturating_sub(u64::from(function.serving) + self.waiting_for_new() as u64)
    }

    /// Arrivals so far, admitted or not.
    pub fn arrivals(&self) -> u64 {
        self.function.statistics.arrivals
    }

    /// When the last request arrived.
    pub fn last_arrival(&self) -> Option<Nanos> {
        self.function.statistics.last_arrival()
    }

    /// Arrivals a second of late.
    pub fn arrival_rate(&self) -> f64 {
        self.function.statistics.arrival_rate(self.state.now)
    }

    /// Invocations that ended by themselves; the means are of these.
    pub fn ended(&self) -> u64 {
        self.function.statistics.ended()
    }

    /// Mean duration of an invocation; None if none has ended.
    pub fn mean_duration(&self) -> Option<Nanos> {
        self.function.statistics.mean_duration()
    }

    /// Mean CPU time of an invocation; None if none was measured.
    pub fn mean_cpu(&self) -> Option<Nanos> {
        self.function.statistics.mean_cpu()
    }

    /// Mean of the invocations' average memory; None if none was measured.
    pub fn mean_memory(&self) -> Option<u64> {
        self.function.statistics.mean_memory()
    }

    /// What is expected of an invocation.
    pub(crate) fn expected(&self) -> Expected {
        if self.state.expects {
            self.function.extra.prospect.expected
        } else {
            Expected::of(&self.function.settings, &self.function.statistics)
        }
    }

    /// Mean time that the start of an instance took; None if none was ready yet.
    pub fn mean_initialization(&self) -> Option<Nanos> {
        self.function.extra.initialization.get()
    }

    /// The one of [`Self::available`] that was used last.
    pub fn last_available(&self) -> Option<InstanceView<'a>> {
        self.function.available.last().map(|slot| InstanceView::new(self.state, slot))
    }

    /// The instances that can take a request now, the least recently used first.
    pub fn available(&self) -> impl DoubleEndedIterator<Item = InstanceView<'a>> + use<'a> {
        let state = self.state;
        let slots = self.function.available.iter(&state.instances);
        slots.map(move |slot| InstanceView::new(state, slot))
    }
}

/// A worker, what it has and what is taken of it.
#[derive(Debug, Clone, Copy)]
pub struct WorkerView<'a> {
    state: &'a State,
    slot: usize,
}

impl<'a> WorkerView<'a> {
    fn new(state: &'a State, slot: usize) -> Self {
        Self { state, slot }
    }

    /// Read only when asked for: placements rule most workers out by their loads alone.
    fn worker(&self) -> &'a Worker {
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

/// An instance.
#[derive(Debug, Clone, Copy)]
pub struct InstanceView<'a> {
    state: &'a State,
    slot: usize,
    instance: &'a Instance,
}

impl<'a> InstanceView<'a> {
    fn new(state: &'a State, slot: usize) -> Self {
        Self { state, slot, instance: &state.instances[slot] }
    }

    /// Its name.
    pub fn id(&self) -> InstanceId {
        self.instance.id
    }

    /// What it is an instance of.
    pub fn function(&self) -> FunctionView<'a> {
        View::new(self.state).function_at(self.instance.function())
    }

    /// Where it is.
    pub fn worker(&self) -> WorkerView<'a> {
        WorkerView::new(self.state, self.instance.worker())
    }

    /// What it does.
    pub fn phase(&self) -> Phase {
        self.instance.phase
    }

    /// Since when: for an active one, since it took a request while it served none.
    pub fn since(&self) -> Nanos {
        self.instance.since
    }

    /// Requests that it serves.
    pub fn serving(&self) -> usize {
        self.instance.serving.len()
    }

    /// Requests that it was given so far.
    pub fn served(&self) -> u64 {
        u64::from(self.instance.served)
    }

    /// Requests that it can serve at once.
    pub fn concurrency(&self) -> u32 {
        self.instance.concurrency
    }

    /// What was done to it while it idles, if anything.
    pub fn paused(&self) -> Option<Pause> {
        self.instance.paused
    }

    /// CPU and memory allocated to it.
    pub fn allocation(&self) -> Resources {
        self.state.size(self.slot).allocation
    }

    /// What it has of them for itself while it serves.
    pub fn reservation(&self) -> Resources {
        self.state.size(self.slot).reservation
    }

    /// Whether it may be evicted now.
    pub fn is_evictable(&self) -> bool {
        self.instance.is_evictable()
    }

    /// Whether it may be stopped while it serves.
    pub fn is_preemptible(&self) -> bool {
        self.instance.preemptible
    }

    /// What it uses, by the last sample; zero if it was never sampled.
    pub fn used(&self) -> Resources {
        self.state.extras[self.slot].used
    }
}
