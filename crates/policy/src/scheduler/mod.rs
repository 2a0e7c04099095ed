//! What follows from an event.

mod admitting;
mod instances;
mod room;
mod serving;
mod starting;
mod stopping;
mod timers;
mod workers;

use rand_chacha::rand_core::SeedableRng as _;

use crate::admission::WaitFor;
use crate::cpu::CpuEvent;
use crate::retention::Ahead;
use crate::scaling::Change;
use crate::state::timer::NEVER;
use crate::state::{Function, Key, QUEUES, State};
use crate::{
    Counts, CpuAssignment, Decision, Event, FunctionId, FunctionSettings, Hint, HintAnswer,
    InstanceId, Nanos, Parameters, Policies, Random, Sample, StopReason, View,
};
use timers::Timers;

/// Decides what becomes of requests and instances.
///
/// * An admitted request takes an available instance if there is one. Otherwise an instance is
///   started for it, and it waits for that one, or for whichever is free first if the
///   [`Binding`](crate::binding::Binding) says so. An instance whose requests were served elsewhere
///   becomes idle.
/// * A request that is not admitted is rejected, or waits. A start for which there is no room waits,
///   too; idle instances are evicted for it. Both are taken up again in the order of their ranks as
///   soon as something ends or leaves, the first before any other is tried, unless the
///   [`Order`](crate::order::Order) lets some pass: none starves, and an event's cost does not grow with what waits.
/// * An update retires the instances: what is idle is stopped at once, what serves a request, or is
///   being started for one, afterwards.
/// * A request whose instance is gone before it was given the request, or is preempted, is served
///   again before those that came later.
pub struct Scheduler {
    policies: Policies,
    random: Random,
    state: State,
    timers: Timers,
    /// How often the scaling is asked without an event, and when next, or never.
    tick_every: Option<Nanos>,
    next_tick: Nanos,
    /// Something ended or left, so that what waits may go on.
    is_room_new: bool,
    /// The first of each queue that did not fit, and since when it has been the first.
    firsts: [Option<(Key, Nanos)>; QUEUES],
    /// Whether the policy for CPUs is asked at all.
    assigns_cpus: bool,
    /// Whether the policy for scaling is asked about functions that lack nothing.
    starts_ahead: bool,
    /// Whether the policy for retention starts instances ahead of their requests.
    prewarms: bool,
    /// Whether it reads hints.
    reads_hints: bool,
    /// Filled by policies, and empty between uses.
    assignments: Vec<(InstanceId, CpuAssignment)>,
    changes: Vec<(FunctionId, Change)>,
    prewarmed: Vec<Ahead>,
}

impl Scheduler {
    /// No workers, no functions; the policies draw from a stream with this seed.
    pub fn new(policies: Policies, seed: u64) -> Self {
        Self::with_parameters(policies, Parameters::default(), seed)
    }

    /// The same with other numbers for the policies.
    pub fn with_parameters(policies: Policies, parameters: Parameters, seed: u64) -> Self {
        Self {
            tick_every: policies.scaling.tick_every(&parameters).map(|every| every.max(1)),
            assigns_cpus: policies.cpu.assigns(),
            starts_ahead: policies.scaling.starts_ahead(),
            prewarms: policies.retention.prewarms(),
            reads_hints: policies.retention.reads_hints(),
            random: Random::seed_from_u64(seed),
            state: State::new(
                parameters,
                policies.admission.reserves_only(),
                policies.admission.reserves_only() || policies.placement.reads_expectations(),
            ),
            policies,
            timers: Timers::default(),
            next_tick: NEVER,
            is_room_new: false,
            firsts: [None; QUEUES],
            assignments: Vec::new(),
            changes: Vec::new(),
            prewarmed: Vec::new(),
        }
    }

    /// Appends to `out` what follows from `event`, which happened at `now`.
    ///
    /// What was due by then comes first, even if the wake-up for it is late: an instance that has
    /// idled for its keep-alive time serves no more. An event about an instance, function or worker
    /// that the scheduler does not know (any more) is none.
    pub fn on_event(&mut self, now: Nanos, event: &Event, out: &mut Vec<Decision>) {
        self.begin(now, out);
        match *event {
            Event::WorkerJoined { worker, capacity } => self.join(worker, capacity, out),
            Event::WorkerDrained { worker } => self.drain(worker, out),
            Event::WorkerGone { worker } => self.lose_worker(worker, out),
            Event::FunctionConfigured { function, settings } => {
                self.configure(function, settings, out);
            }
            Event::FunctionUpdated { function } => {
                if let Some(slot) = self.state.function(function) {
                    self.state.functions[slot].is_broken = false;
                    self.retire(slot, StopReason::Update, out);
                    self.serve(slot, out);
                }
            }
            Event::FunctionDeleted { function } => self.delete(function, out),
            Event::Arrival { request, function, can_wait } => {
                self.arrive(request, function, can_wait, out);
            }
            Event::ConnectionBegan { function } => self.connect(function, out),
            Event::ConnectionSettled { function } => {
                if let Some(slot) = self.state.function(function) {
                    let connecting = &mut self.state.functions[slot].extra.connecting;
                    *connecting = connecting.saturating_sub(1);
                }
            }
            Event::InstanceReady { instance, initialization } => {
                self.ready(instance, initialization, out);
            }
            Event::InstanceFailed { instance } => self.failed(instance, out),
            Event::InvocationEnded { request, instance, end, usage } => {
                self.ended(request, instance, end, &usage, out);
            }
            Event::Undelivered { request, instance } => self.undelivered(request, instance, out),
            Event::InstanceGone { instance } => self.gone(instance, out),
            Event::Sampled { instance, cpu, memory } => self.sampled(instance, cpu, memory, out),
            Event::MemoryPressure { worker, bytes } => self.relieve(worker, bytes, out),
            Event::Wake => {}
            Event::Shutdown => self.shut_down(out),
        }
        self.conclude(out);
    }

    /// The same for samples of several instances, taken at the same time: what follows is decided once all
    /// are known, not in between, where some would count by what they use now and others by what they
    /// used before.
    pub fn on_samples(&mut self, now: Nanos, samples: &[Sample], out: &mut Vec<Decision>) {
        self.begin(now, out);
        for sample in samples {
            self.sampled(sample.instance, sample.cpu, sample.memory, out);
        }
        self.conclude(out);
    }

    /// Takes note of what a request of the function, which has arrived, says of those to come, and appends to
    /// `out` what follows.
    pub fn on_hint(
        &mut self,
        now: Nanos,
        function: FunctionId,
        hint: Hint,
        out: &mut Vec<Decision>,
    ) -> HintAnswer {
        self.begin(now, out);
        let known = self.state.function(function);
        let known = known.filter(|slot| !self.state.functions[*slot].deleted);
        let answer = match known {
            Some(slot) if !self.state.shutting_down => {
                let view = View::new(&self.state);
                self.policies.retention.on_hint(view, &view.function_at(slot), hint)
            }
            _ => HintAnswer::NoFunction,
        };
        self.conclude(out);
        answer
    }

    /// Passes to the time of an event, and does what was due by then.
    #[inline]
    fn begin(&mut self, now: Nanos, out: &mut Vec<Decision>) {
        self.state.now = self.state.now.max(now);
        self.run_timers(out);
    }

    /// Does what else follows from an event.
    #[inline]
    fn conclude(&mut self, out: &mut Vec<Decision>) {
        self.run_timers(out);
        while std::mem::take(&mut self.is_room_new) && self.state.is_anything_waiting() {
            self.start_parked(out);
            self.admit_waiting(out);
        }
        let next = self.next_tick.min(self.next_prewarm());
        if let Some(at) = self.timers.arm(&mut self.state.instances, self.state.now, next) {
            out.push(Decision::WakeAt(at));
        }
    }

    /// The state as the policies see it.
    pub fn view(&self) -> View<'_> {
        View::new(&self.state)
    }

    /// How many instances do what, for people to see.
    pub fn counts(&self) -> Counts {
        self.state.counts()
    }

    /// Whether one of the policies reads what instances use: [`Event::Sampled`] changes nothing otherwise.
    pub fn reads_samples(&self) -> bool {
        let Policies { admission, placement, reuse, eviction, cpu, .. } = &self.policies;
        admission.reads_samples()
            || placement.reads_samples()
            || reuse.reads_samples()
            || eviction.reads_samples()
            || cpu.assigns()
    }

    /// Whether hints change anything: [`Self::on_hint`] takes none otherwise.
    pub fn reads_hints(&self) -> bool {
        self.reads_hints
    }

    /// Whether connections start anything: [`Event::ConnectionBegan`] changes nothing otherwise.
    pub fn reads_connections(&self) -> bool {
        self.policies.connection.reads_connections()
    }

    /// Admitted requests that have not ended.
    pub fn in_flight(&self) -> u32 {
        self.state.in_flight
    }

    /// Instances in whatever phase, until they are reported gone.
    pub fn instances(&self) -> usize {
        self.state.instances.len()
    }

    /// Timers that are set; never more than there are idle instances.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    fn configure(&mut self, id: FunctionId, settings: FunctionSettings, out: &mut Vec<Decision>) {
        let slot = match self.state.function(id) {
            Some(slot) => slot,
            None => self.state.add_function(Function::new(id, settings)),
        };
        self.state.leave_queue(slot);
        self.state.set_settings(slot, settings);
        let function = &mut self.state.functions[slot];
        function.deleted = false;
        function.is_broken = false;
        for member in function.extra.members.clone() {
            self.reconsider_idle(member as usize, out);
        }
        self.run_timers(out);
        self.state.wait_for(slot, Some(WaitFor::Class));
        self.is_room_new = true;
        self.serve(slot, out);
    }

    #[inline]
    fn run_timers(&mut self, out: &mut Vec<Decision>) {
        if self.timers.may_be_due(self.state.now) || self.tick_every.is_some() || self.prewarms {
            self.run_due_timers(out);
        }
    }

    fn run_due_timers(&mut self, out: &mut Vec<Decision>) {
        while let Some(slot) = self.timers.next_due(&mut self.state.instances, self.state.now) {
            self.idle_timer(slot, out);
        }
        if self.next_prewarm() <= self.state.now {
            self.prewarm(out);
        }
        let Some(every) = self.tick_every else { return };
        let now = self.state.now;
        if self.next_tick == NEVER {
            self.next_tick = now.saturating_add(every);
        }
        if self.next_tick <= now {
            self.next_tick = now.saturating_add(every);
            self.tick(out);
        }
    }

    /// When an instance is to be started ahead of its requests, or never.
    fn next_prewarm(&self) -> Nanos {
        let next = if self.prewarms { self.policies.retention.next_prewarm() } else { None };
        next.unwrap_or(NEVER)
    }

    /// Has the CPUs assigned anew after what happened to the instance in the slot.
    #[inline]
    fn assign_cpus(&mut self, slot: usize, event: CpuEvent, out: &mut Vec<Decision>) {
        if self.assigns_cpus {
            self.ask_for_cpus(slot, event, out);
        }
    }

    fn ask_for_cpus(&mut self, slot: usize, event: CpuEvent, out: &mut Vec<Decision>) {
        let view = View::new(&self.state);
        let (random, changed) = (&mut self.random, &mut self.assignments);
        self.policies.cpu.assign(view, random, &view.instance_at(slot), event, changed);
        for (instance, assignment) in changed.drain(..) {
            out.push(Decision::SetCpu { instance, assignment });
        }
    }
}
