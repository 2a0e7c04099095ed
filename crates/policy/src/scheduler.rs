//! The books: which instance does what, who waits, and what follows from an event.

use std::collections::{HashMap, VecDeque};

use crate::timers::{Timer, Timers};
use crate::{
    Decision, Demand, End, Event, FunctionId, FunctionSettings, Idle, InstanceId, Load, Nanos,
    Pause, Policies, Rejection, RequestId, StopReason, WorkerId,
};

/// How many instances do what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub starting: usize,
    pub busy: usize,
    pub idle: usize,
    pub frozen: usize,
    pub scaled_down: usize,
    pub stopping: usize,
    pub waiting: usize,
}

/// A request that waits, and the instance that was started on its behalf, unless that one serves
/// another by now. It fails only if its own instance fails to start.
#[derive(Debug)]
struct Waiting {
    request: RequestId,
    own: Option<InstanceId>,
}

#[derive(Debug)]
struct Function {
    settings: FunctionSettings,
    deleted: bool,
    waiting: VecDeque<Waiting>,
    /// The longest idle first.
    idle: Vec<Idle>,
    /// Requests that wait or run.
    in_flight: u32,
    /// Instances in whatever state.
    instances: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Idle,
    Busy,
    Stopping,
}

#[derive(Debug)]
struct Instance {
    function: FunctionId,
    state: State,
    /// It is to be stopped as soon as it serves nothing.
    retiring: Option<StopReason>,
}

/// One request per instance at a time, a new instance when none is free, up to a limit.
///
/// * A request takes an idle instance if there is one. Otherwise an instance is started for it,
///   and it waits for that one, or for whichever is free first if the [`Binding`] says so. An
///   instance whose request was served elsewhere becomes idle.
/// * At most `max_instances` requests are in flight. When that many instances exist and another
///   function needs one, an idle one is evicted; only instances that are being started for a
///   request that was served elsewhere may exceed the limit, until they are ready.
/// * An update retires the instances: what is idle is stopped at once, what serves a request (or
///   is being started for one) afterwards.
pub struct Scheduler {
    policies: Policies,
    max_instances: u32,
    worker: WorkerId,
    functions: HashMap<FunctionId, Function>,
    instances: HashMap<InstanceId, Instance>,
    timers: Timers,
    next_instance: u64,
    in_flight: u32,
    /// Instances that are being stopped.
    stopping: usize,
    shutting_down: bool,
    now: Nanos,
}

impl Scheduler {
    /// Workers join by event.
    pub fn new(policies: Policies, _seed: u64) -> Self {
        Self {
            policies,
            max_instances: 0,
            worker: WorkerId(0),
            functions: HashMap::new(),
            instances: HashMap::new(),
            timers: Timers::default(),
            next_instance: 1,
            in_flight: 0,
            stopping: 0,
            shutting_down: false,
            now: 0,
        }
    }

    /// Appends to `out` what follows from `event`, which happened at `now`.
    ///
    /// What was due by then comes first, even if the wake-up for it is late: an instance that has
    /// idled for its keep-alive time serves no more. An event about an instance or function that
    /// the scheduler does not know (any more) is none.
    pub fn on_event(&mut self, now: Nanos, event: &Event, out: &mut Vec<Decision>) {
        self.now = self.now.max(now);
        self.run_timers(out);
        match *event {
            Event::FunctionConfigured { function, settings } => self.configure(function, settings),
            Event::FunctionUpdated { function } => self.retire(function, StopReason::Update, out),
            Event::FunctionDeleted { function } => {
                if let Some(known) = self.functions.get_mut(&function) {
                    known.deleted = true;
                }
                self.retire(function, StopReason::Delete, out);
                self.forget(function);
            }
            Event::Arrival { request, function, .. } => self.arrive(request, function, out),
            Event::InstanceReady { instance, .. } => self.ready(instance, out),
            Event::InstanceFailed { instance } => self.failed(instance, out),
            Event::InvocationEnded { instance, end, .. } => {
                self.done(instance, end == End::Survives, out);
            }
            Event::Undelivered { request, instance } => self.undelivered(request, instance, out),
            Event::InstanceGone { instance } => self.gone(instance, out),
            Event::WorkerJoined { worker, capacity } => {
                self.worker = worker;
                self.max_instances = capacity.max_instances;
            }
            Event::WorkerGone { .. }
            | Event::Sampled { .. }
            | Event::MemoryPressure { .. }
            | Event::Wake => {}
            Event::Shutdown => self.shut_down(out),
        }
        self.run_timers(out);
        if let Some(at) = self.timers.arm(self.now) {
            out.push(Decision::WakeAt(at));
        }
    }

    /// How many instances do what, for people to see.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for instance in self.instances.values() {
            match instance.state {
                State::Starting => counts.starting += 1,
                State::Busy => counts.busy += 1,
                State::Idle => counts.idle += 1,
                State::Stopping => counts.stopping += 1,
            }
        }
        for function in self.functions.values() {
            counts.waiting += function.waiting.len();
            let paused = |how| {
                let idle = function.idle.iter();
                idle.filter(move |idle| idle.paused == Some(how)).count()
            };
            counts.frozen += paused(Pause::Freeze);
            counts.scaled_down += paused(Pause::ScaleDown);
        }
        counts
    }

    /// Requests that wait or run.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Instances in whatever state, until they are reported gone.
    pub fn instances(&self) -> usize {
        self.instances.len()
    }

    /// Timers that are set; never more than there are idle instances.
    pub fn timers(&self) -> usize {
        self.timers.len()
    }

    fn configure(&mut self, id: FunctionId, settings: FunctionSettings) {
        let function = self.functions.entry(id).or_insert_with(|| Function {
            settings,
            deleted: false,
            waiting: VecDeque::new(),
            idle: Vec::new(),
            in_flight: 0,
            instances: 0,
        });
        function.settings = settings;
        for idle in function.idle.clone() {
            self.plan(id, idle);
        }
    }

    fn arrive(&mut self, request: RequestId, id: FunctionId, out: &mut Vec<Decision>) {
        let refusal = match self.functions.get(&id) {
            _ if self.shutting_down => Some(Rejection::ShuttingDown),
            Some(function) if !function.deleted => {
                let load = Load {
                    function_in_flight: function.in_flight,
                    function_limit: function.settings.max_in_flight,
                    worker_in_flight: self.in_flight,
                    worker_limit: self.max_instances,
                };
                self.policies.admission.admit(&load).err()
            }
            _ => Some(Rejection::NoFunction),
        };
        if let Some(reason) = refusal {
            out.push(Decision::Reject { request, reason });
            return;
        }
        if let Some(function) = self.functions.get_mut(&id) {
            self.in_flight += 1;
            function.in_flight += 1;
            function.waiting.push_back(Waiting { request, own: None });
            self.serve(id, out);
        }
    }

    fn ready(&mut self, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(instance) = self.in_state(id, State::Starting) else { return };
        let function = instance.function;
        instance.state = State::Busy;
        if let Some(request) = self.take_own(function, id) {
            out.push(Decision::Assign { request, instance: id, resume: None });
        } else {
            self.free(id, out);
        }
    }

    fn failed(&mut self, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(instance) = self.in_state(id, State::Starting) else { return };
        let function = instance.function;
        if let Some(request) = self.take_own(function, id) {
            self.leave(function);
            out.push(Decision::Reject { request, reason: Rejection::StartFailed(id) });
        }
        self.remove(id);
        self.serve(function, out);
    }

    fn done(&mut self, id: InstanceId, survives: bool, out: &mut Vec<Decision>) {
        let Some(instance) = self.in_state(id, State::Busy) else { return };
        let function = instance.function;
        self.leave(function);
        if survives {
            self.free(id, out);
        } else {
            self.remove(id);
            self.serve(function, out);
        }
        self.forget(function);
    }

    fn undelivered(&mut self, request: RequestId, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(instance) = self.in_state(id, State::Busy) else { return };
        let function = instance.function;
        self.remove(id);
        if let Some(known) = self.functions.get_mut(&function).filter(|known| !known.deleted) {
            known.waiting.push_front(Waiting { request, own: None });
            self.serve(function, out);
        } else {
            self.leave(function);
            out.push(Decision::Reject { request, reason: Rejection::NoFunction });
            self.forget(function);
        }
    }

    fn gone(&mut self, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(instance) = self.instances.get(&id) else { return };
        let function = instance.function;
        match instance.state {
            State::Idle => self.unlist(id),
            State::Stopping => {}
            // While it starts or serves, its end is told by what it was doing.
            State::Starting | State::Busy => return,
        }
        self.remove(id);
        self.serve(function, out);
    }

    fn shut_down(&mut self, out: &mut Vec<Decision>) {
        self.shutting_down = true;
        let mut functions: Vec<FunctionId> = self.functions.keys().copied().collect();
        functions.sort_unstable();
        for function in functions {
            self.retire(function, StopReason::Shutdown, out);
        }
    }

    /// Gives what waits to what is idle, and starts what is missing.
    fn serve(&mut self, id: FunctionId, out: &mut Vec<Decision>) {
        let Some(function) = self.functions.get_mut(&id) else { return };
        let late = self.policies.binding.late();
        while !function.idle.is_empty() {
            let next = function.waiting.iter().position(|waiting| late || waiting.own.is_none());
            let Some(waiting) = next.and_then(|index| function.waiting.remove(index)) else {
                break;
            };
            let idle = function.idle.remove(self.policies.reuse.choose(&function.idle));
            self.timers.clear(idle.instance);
            if let Some(instance) = self.instances.get_mut(&idle.instance) {
                instance.state = State::Busy;
            }
            out.push(Decision::Assign {
                request: waiting.request,
                instance: idle.instance,
                resume: idle.paused,
            });
        }
        self.start_missing(id, out);
        self.forget(id);
    }

    fn start_missing(&mut self, id: FunctionId, out: &mut Vec<Decision>) {
        let Some(function) = self.functions.get_mut(&id) else { return };
        if function.waiting.is_empty() {
            return;
        }
        let owned: Vec<InstanceId> = function.waiting.iter().filter_map(|w| w.own).collect();
        let mut spare: Vec<InstanceId> = Vec::new();
        let (mut starting, mut busy) = (0, 0);
        for (&instance, known) in &self.instances {
            if known.function != id {
                continue;
            }
            match known.state {
                // A retiring one counts only for the request that it was started for.
                State::Starting if known.retiring.is_none() || owned.contains(&instance) => {
                    starting += 1;
                    if !owned.contains(&instance) {
                        spare.push(instance);
                    }
                }
                State::Busy => busy += 1,
                _ => {}
            }
        }
        // The one that was started first is likely to be ready first.
        spare.sort_unstable_by(|a, b| b.cmp(a));
        let demand = Demand { waiting: function.waiting.len() as u32, starting, busy };
        let starts = self.policies.scaling.starts(&demand);
        for _ in 0..starts {
            let instance = self.start(id, out);
            spare.insert(0, instance);
        }
        if let Some(function) = self.functions.get_mut(&id) {
            for waiting in function.waiting.iter_mut().filter(|w| w.own.is_none()) {
                waiting.own = spare.pop();
            }
        }
    }

    fn start(&mut self, function: FunctionId, out: &mut Vec<Decision>) -> InstanceId {
        self.make_room(1, out);
        let id = InstanceId(self.next_instance);
        self.next_instance += 1;
        let retiring = self.shutting_down.then_some(StopReason::Shutdown);
        self.instances.insert(id, Instance { function, state: State::Starting, retiring });
        if let Some(known) = self.functions.get_mut(&function) {
            known.instances += 1;
        }
        out.push(Decision::Start { instance: id, function, worker: self.worker });
        id
    }

    /// Evicts idle instances until `wanted` more fit, or none is idle.
    fn make_room(&mut self, wanted: usize, out: &mut Vec<Decision>) {
        while self.instances.len() - self.stopping + wanted > self.max_instances as usize {
            let mut idle = self.functions.values().flat_map(|function| &function.idle).copied();
            let Some(victim) = self.policies.eviction.victim(&mut idle) else { return };
            drop(idle);
            self.unlist(victim);
            self.stop(victim, StopReason::Evicted, out);
        }
    }

    /// The instance has nothing to do: it serves who waits, retires, or idles.
    fn free(&mut self, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        if let Some(reason) = instance.retiring {
            self.stop(id, reason, out);
            return;
        }
        instance.state = State::Idle;
        let function = instance.function;
        let idle = Idle { instance: id, since: self.now, paused: None };
        if let Some(known) = self.functions.get_mut(&function) {
            known.idle.push(idle);
        }
        self.plan(function, idle);
        self.serve(function, out);
        self.make_room(0, out);
    }

    /// Sets the timer for what becomes of an idle instance next.
    fn plan(&mut self, function: FunctionId, idle: Idle) {
        let Some(known) = self.functions.get(&function) else { return };
        let schedule = self.policies.retention.schedule(idle.since, &known.settings);
        let pause = schedule.pause.filter(|(at, _)| *at < schedule.stop_at);
        match pause.filter(|_| idle.paused.is_none()) {
            Some((at, _)) => self.timers.set(idle.instance, at, Timer::Pause),
            None => self.timers.set(idle.instance, schedule.stop_at, Timer::Stop),
        }
    }

    fn run_timers(&mut self, out: &mut Vec<Decision>) {
        while let Some((id, timer)) = self.timers.due(self.now) {
            let Some(function) = self.instances.get(&id).map(|known| known.function) else {
                continue;
            };
            match timer {
                Timer::Pause => {
                    let Some(known) = self.functions.get_mut(&function) else { continue };
                    let Some(idle) = known.idle.iter_mut().find(|idle| idle.instance == id) else {
                        continue;
                    };
                    let schedule = self.policies.retention.schedule(idle.since, &known.settings);
                    idle.paused = schedule.pause.map(|(_, how)| how);
                    let idle = *idle;
                    self.plan(function, idle);
                    if let Some(how) = idle.paused {
                        out.push(Decision::Pause { instance: id, how });
                    }
                }
                Timer::Stop => {
                    self.unlist(id);
                    self.stop(id, StopReason::KeepAlive, out);
                }
            }
        }
    }

    /// Marks all instances of a function to be stopped, and stops those that are idle.
    fn retire(&mut self, id: FunctionId, reason: StopReason, out: &mut Vec<Decision>) {
        for instance in self.instances.values_mut().filter(|known| known.function == id) {
            instance.retiring.get_or_insert(reason);
        }
        let Some(function) = self.functions.get_mut(&id) else { return };
        for idle in std::mem::take(&mut function.idle) {
            self.stop(idle.instance, reason, out);
        }
    }

    fn stop(&mut self, id: InstanceId, reason: StopReason, out: &mut Vec<Decision>) {
        self.timers.clear(id);
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.state = State::Stopping;
            self.stopping += 1;
            out.push(Decision::Stop { instance: id, reason });
        }
    }

    /// Takes an idle instance off its function's list.
    fn unlist(&mut self, id: InstanceId) {
        self.timers.clear(id);
        let Some(instance) = self.instances.get(&id) else { return };
        if let Some(function) = self.functions.get_mut(&instance.function) {
            function.idle.retain(|idle| idle.instance != id);
        }
    }

    /// Takes an instance off the books.
    fn remove(&mut self, id: InstanceId) {
        self.timers.clear(id);
        let Some(instance) = self.instances.remove(&id) else { return };
        if instance.state == State::Stopping {
            self.stopping -= 1;
        }
        if let Some(function) = self.functions.get_mut(&instance.function) {
            function.instances -= 1;
            for waiting in function.waiting.iter_mut().filter(|w| w.own == Some(id)) {
                waiting.own = None;
            }
        }
    }

    /// Takes the request that the instance was started for, if it still waits.
    fn take_own(&mut self, function: FunctionId, id: InstanceId) -> Option<RequestId> {
        let waiting = &mut self.functions.get_mut(&function)?.waiting;
        let index = waiting.iter().position(|waiting| waiting.own == Some(id))?;
        waiting.remove(index).map(|waiting| waiting.request)
    }

    /// A request is not in flight any more.
    fn leave(&mut self, function: FunctionId) {
        self.in_flight -= 1;
        if let Some(known) = self.functions.get_mut(&function) {
            known.in_flight -= 1;
        }
    }

    /// Drops a deleted function of which nothing is left.
    fn forget(&mut self, id: FunctionId) {
        if self
            .functions
            .get(&id)
            .is_some_and(|known| known.deleted && known.instances == 0 && known.in_flight == 0)
        {
            self.functions.remove(&id);
        }
    }

    fn in_state(&mut self, id: InstanceId, state: State) -> Option<&mut Instance> {
        self.instances.get_mut(&id).filter(|known| known.state == state)
    }
}
