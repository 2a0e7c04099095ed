//! The loop: what is due next happens, the scheduler decides, and it is done.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use uncia_arrivals::RandomStream;
use uncia_policy::sharing::{self, Sharing};
use uncia_policy::{
    Capacity, Decision, End, Event, FunctionId, InstanceId, Nanos, Policies, RequestId, Scheduler,
    StopReason, Usage, WorkerId,
};

use crate::check::{SettingError, check};
use crate::events::{Due, Events};
use crate::setting::{Outcome, Setting, Trace};
use crate::totals::{Integral, Totals};
use crate::worker::{Running, Scratch, Worker};
use crate::{Interval, Life, Run, Served, Sink};

const MICRO_PER_VCPU: Integral = 1_000_000;

/// After so long without anything that starts or runs, what waits waits for ever.
const PATIENCE: Nanos = 24 * 3_600 * 1_000_000_000;

/// So many attempts are preempted one after the other when they have just begun, at most.
const MOST_IN_VAIN: u64 = 100_000;

/// What the whole simulation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Summary {
    /// Things that happened: arrivals, ends of starts and phases, preemptions, timers.
    pub events: u64,
    /// When it ended.
    pub end: Nanos,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that ran to their end.
    pub served: u64,
    /// Attempts that were preempted.
    pub preempted: u64,
    /// Requests that were turned away.
    pub rejected: u64,
    /// Requests that had not ended when the simulation did.
    pub unfinished: u64,
    /// Instances that were started.
    pub starts: u64,
    /// The number of requests that had arrived and not ended, over time: requests x ns.
    pub in_system: Integral,
    /// Integrals over all workers.
    pub totals: Totals,
}

/// Why a simulation did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum Failed<E> {
    /// It cannot be simulated.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The policies let more memory be used than there is.
    #[error(
        "at {at} ns: worker {worker} uses {bytes} bytes more than it has, and the policies stop nothing \
         there"
    )]
    OutOfMemory {
        /// When.
        at: Nanos,
        /// Where.
        worker: usize,
        /// By how much.
        bytes: u64,
    },
    /// What is preempted begins again at once, and is preempted again.
    #[error("at {at} ns: worker {worker} preempts what it begins, over and over")]
    Livelock {
        /// When.
        at: Nanos,
        /// Where.
        worker: usize,
    },
    /// Requests wait, and nothing will ever serve them.
    #[error("{requests} requests wait, and the policies start nothing for them")]
    Stuck {
        /// How many.
        requests: u64,
    },
    /// A row was not taken.
    #[error(transparent)]
    Sink(E),
}

/// A request that waits.
struct Waiting {
    arrived: Nanos,
    attempt: u32,
}

struct Instance {
    life: Life,
    idle_since: Option<Nanos>,
    idle_memory: u64,
}

/// Simulates a trace.
///
/// # Errors
/// The setting or the trace is wrong, which is found before anything is simulated; the policies let
/// memory run out, or serve no one; or the sink took no row.
pub fn simulate<S: Sink>(
    setting: &Setting,
    trace: &Trace,
    sink: &mut S,
) -> Result<Summary, Failed<S::Error>> {
    check(setting, trace)?;
    let mut simulation = Simulation::new(setting, trace, sink)?;
    simulation.set_up()?;
    simulation.run()?;
    simulation.finish()
}

struct Simulation<'a, S> {
    setting: &'a Setting,
    trace: &'a Trace,
    sink: &'a mut S,
    scheduler: Scheduler,
    sharing: Box<dyn Sharing>,
    starts: RandomStream,
    now: Nanos,
    events: Events,
    wake_at: Option<Nanos>,
    next_arrival: usize,
    /// When something last started, ran or arrived.
    last_progress: Nanos,
    outstanding: u64,
    /// Preemptions of what had just begun, since another.
    vain: u64,
    /// Instances that were stopped.
    stopped: u64,
    waiting: FxHashMap<RequestId, Waiting>,
    instances: FxHashMap<InstanceId, Instance>,
    workers: Vec<Worker>,
    accounts: Vec<(Nanos, Totals)>,
    /// Workers on which something has changed.
    changed: Vec<usize>,
    /// What the scheduler is to be told.
    reports: VecDeque<Event>,
    decisions: Vec<Decision>,
    scratch: Scratch,
    summary: Summary,
}

impl<'a, S: Sink> Simulation<'a, S> {
    fn new(setting: &'a Setting, trace: &'a Trace, sink: &'a mut S) -> Result<Self, SettingError> {
        let policies = Policies::from_names(&setting.policies)?;
        Ok(Self {
            setting,
            trace,
            sink,
            scheduler: Scheduler::with_parameters(policies, setting.parameters, setting.seed),
            sharing: sharing::from_name(&setting.sharing)?,
            starts: RandomStream::new(setting.seed, "starts of instances"),
            now: 0,
            events: Events::default(),
            wake_at: None,
            next_arrival: 0,
            last_progress: 0,
            outstanding: 0,
            vain: 0,
            stopped: 0,
            waiting: FxHashMap::default(),
            instances: FxHashMap::default(),
            workers: setting.workers.iter().map(|capacity| Worker::new(*capacity)).collect(),
            accounts: vec![(0, Totals::default()); setting.workers.len()],
            changed: Vec::new(),
            reports: VecDeque::new(),
            decisions: Vec::new(),
            scratch: Scratch::default(),
            summary: Summary::default(),
        })
    }

    fn set_up(&mut self) -> Result<(), Failed<S::Error>> {
        for (index, resources) in self.setting.workers.iter().enumerate() {
            // Instances are bounded by CPU and memory, not by their number.
            let capacity = Capacity { resources: *resources, max_instances: 1 << 20 };
            self.report(Event::WorkerJoined { worker: WorkerId(index as u32), capacity })?;
        }
        for (index, function) in self.setting.functions.iter().enumerate() {
            let (function, settings) = (FunctionId(index as u64), function.settings);
            self.report(Event::FunctionConfigured { function, settings })?;
        }
        if let Some(interval) = self.setting.interval {
            self.events.plan(interval, Due::Account);
        }
        Ok(())
    }

    fn run(&mut self) -> Result<(), Failed<S::Error>> {
        loop {
            let arrival = self.trace.invocations.get(self.next_arrival).map(|it| it.arrival);
            if arrival.is_none() && self.outstanding == 0 && self.setting.until.is_none() {
                return Ok(());
            }
            let due = self.events.next();
            // At the same time what ends comes first: it makes room.
            let is_arrival = arrival.is_some_and(|at| due.is_none_or(|due| at < due));
            let Some(at) = (if is_arrival { arrival } else { due }) else { break };
            if self.setting.until.is_some_and(|until| at > until) {
                break;
            }
            if self.outstanding > 0 && arrival.is_none() && at - self.last_progress > PATIENCE {
                return Err(Failed::Stuck { requests: self.outstanding });
            }
            self.pass_to(at);
            if is_arrival {
                self.arrive()?;
            } else if let Some((_, due)) = self.events.pop() {
                self.happen(due)?;
            }
            self.settle()?;
        }
        match self.setting.until {
            Some(until) => self.pass_to(until),
            None if self.outstanding > 0 => {
                return Err(Failed::Stuck { requests: self.outstanding });
            }
            None => {}
        }
        Ok(())
    }

    fn pass_to(&mut self, at: Nanos) {
        let time = Integral::from(at - self.now);
        self.summary.in_system += Integral::from(self.outstanding) * time;
        self.now = at;
    }

    fn arrive(&mut self) -> Result<(), Failed<S::Error>> {
        let function = FunctionId(self.trace.invocations[self.next_arrival].function as u64);
        let request = RequestId(self.next_arrival as u64);
        self.next_arrival += 1;
        self.outstanding += 1;
        self.summary.events += 1;
        self.summary.arrived += 1;
        self.last_progress = self.now;
        self.waiting.insert(request, Waiting { arrived: self.now, attempt: 1 });
        self.report(Event::Arrival { request, function, can_wait: true })
    }

    fn happen(&mut self, due: Due) -> Result<(), Failed<S::Error>> {
        match due {
            Due::Ready(instance) => {
                let Some(known) = self.instances.get_mut(&instance) else { return Ok(()) };
                self.summary.events += 1;
                self.last_progress = self.now;
                known.life.initialized = Some(self.now);
                known.idle_since = Some(self.now);
                let initialization = self.now - known.life.started;
                self.report(Event::InstanceReady { instance, initialization })
            }
            Due::Phase { worker, change } => {
                let worker = worker as usize;
                if self.workers[worker].change == change && !self.workers[worker].is_changed {
                    self.end_phases(worker)
                } else {
                    Ok(())
                }
            }
            Due::Wake if self.wake_at == Some(self.now) => {
                self.wake_at = None;
                self.summary.events += 1;
                self.report(Event::Wake)
            }
            Due::Wake => Ok(()),
            Due::Account => {
                self.account()?;
                let next = self.setting.interval.and_then(|it| self.now.checked_add(it));
                if let Some(next) = next {
                    self.events.plan(next, Due::Account);
                }
                Ok(())
            }
        }
    }

    /// Ends the phases on a worker that are due.
    fn end_phases(&mut self, index: usize) -> Result<(), Failed<S::Error>> {
        self.touch(index);
        self.last_progress = self.now;
        let mut position = 0;
        let mut ended = Vec::new();
        let worker = &mut self.workers[index];
        while let Some(running) = worker.running.get_mut(position) {
            if !running.is_due() {
                position += 1;
                continue;
            }
            self.summary.events += 1;
            if running.enter_next(&self.trace.phases) {
                position += 1;
            } else {
                ended.push(worker.running.remove(position));
            }
        }
        for running in ended {
            self.serve(index, running)?;
        }
        Ok(())
    }

    /// An attempt has run to its end.
    fn serve(&mut self, worker: usize, running: Running) -> Result<(), Failed<S::Error>> {
        self.outstanding -= 1;
        self.summary.served += 1;
        let instance = running.instance;
        if self.scheduler.reads_samples() {
            self.report(Event::Sampled { instance, cpu: 0, memory: running.memory })?;
        }
        if let Some(known) = self.instances.get_mut(&instance) {
            known.idle_since = Some(self.now);
            known.idle_memory = running.memory;
            self.workers[worker].idle_memory += running.memory;
        }
        let request = RequestId(running.invocation as u64);
        let usage = self.write(worker, running, Outcome::Ok)?;
        self.report(Event::InvocationEnded { request, instance, end: End::Survives, usage })
    }

    /// Writes the row of an attempt that ran; what it used.
    fn write(
        &mut self,
        worker: usize,
        running: Running,
        outcome: Outcome,
    ) -> Result<Usage, Failed<S::Error>> {
        let Running {
            invocation, instance, attempt, arrived, initialization, started, meter, ..
        } = running;
        let duration = self.now - started;
        let number = self.instances.get(&instance).map_or(0, |known| known.life.instance);
        let run = Run { instance: number, worker, initialization, started, ended: self.now, meter };
        let served = Served { invocation, attempt, outcome, arrived, run: Some(run) };
        self.sink.served(&served).map_err(Failed::Sink)?;
        Ok(Usage {
            duration,
            cpu: Some((meter.cpu() / MICRO_PER_VCPU) as Nanos),
            memory: meter.memory.checked_div(Integral::from(duration)).map(|bytes| bytes as u64),
        })
    }

    /// Tells the scheduler what happened, and does what it decides.
    fn report(&mut self, event: Event) -> Result<(), Failed<S::Error>> {
        self.reports.push_back(event);
        while let Some(event) = self.reports.pop_front() {
            let mut decisions = std::mem::take(&mut self.decisions);
            self.scheduler.on_event(self.now, &event, &mut decisions);
            for decision in decisions.drain(..) {
                self.carry_out(decision)?;
            }
            self.decisions = decisions;
        }
        Ok(())
    }

    fn carry_out(&mut self, decision: Decision) -> Result<(), Failed<S::Error>> {
        match decision {
            Decision::Start { instance, function, worker } => {
                self.start(instance, function, worker);
            }
            Decision::Assign { request, instance, .. } => self.assign(request, instance),
            Decision::Reject { request, reason } => {
                let waiting = self.waiting.remove(&request);
                self.outstanding -= 1;
                self.summary.rejected += 1;
                let (arrived, attempt) =
                    waiting.map_or((self.now, 1), |it| (it.arrived, it.attempt));
                let (invocation, outcome) = (request.0 as usize, Outcome::Rejected(reason));
                let served = Served { invocation, attempt, outcome, arrived, run: None };
                self.sink.served(&served).map_err(Failed::Sink)?;
            }
            Decision::Stop { instance, reason } => {
                self.stop(instance, reason)?;
                self.reports.push_back(Event::InstanceGone { instance });
            }
            Decision::Preempt { instance } => self.preempt(instance)?,
            Decision::WakeAt(at) => {
                let at = at.max(self.now);
                self.wake_at = Some(at);
                self.events.plan(at, Due::Wake);
            }
            // Cores are shared by the rule of the setting; a frozen instance uses none, and neither
            // does another idle one.
            Decision::SetCpu { .. } | Decision::Pause { .. } => {}
        }
        Ok(())
    }

    fn start(&mut self, instance: InstanceId, function: FunctionId, worker: WorkerId) {
        let lengths = &self.setting.starts;
        let length = lengths[self.starts.whole_below(lengths.len() as u64, 1) as usize];
        self.events.plan(self.now.saturating_add(length), Due::Ready(instance));
        let life = Life {
            instance: self.summary.starts as usize,
            function: function.0 as usize,
            worker: worker.0 as usize,
            started: self.now,
            initialized: None,
            ended: None,
            invocations: 0,
            idle: Vec::new(),
        };
        self.summary.starts += 1;
        self.last_progress = self.now;
        self.instances.insert(instance, Instance { life, idle_since: None, idle_memory: 0 });
    }

    fn assign(&mut self, request: RequestId, instance: InstanceId) {
        let invocation = request.0 as usize;
        let known = &self.trace.invocations[invocation];
        let settings = &self.setting.functions[known.function].settings;
        let phases = known.first_phase..known.first_phase + known.phases;
        let mut running = Running::new(settings, invocation, instance, phases);
        if let Some(waiting) = self.waiting.remove(&request) {
            (running.arrived, running.attempt) = (waiting.arrived, waiting.attempt);
        }
        running.started = self.now;
        running.enter_next(&self.trace.phases);
        let Some(serving) = self.instances.get_mut(&instance) else { return };
        let life = &mut serving.life;
        if life.invocations == 0 && life.initialized == Some(self.now) {
            running.initialization = Some(self.now - life.started.max(running.arrived));
        }
        life.invocations += 1;
        if let Some(since) = serving.idle_since.take().filter(|since| *since < self.now) {
            life.idle.push((since, self.now));
        }
        let (worker, idle_memory) = (life.worker, std::mem::take(&mut serving.idle_memory));
        self.touch(worker);
        self.workers[worker].idle_memory -= idle_memory;
        self.workers[worker].running.push(running);
    }

    /// An instance that serves nothing is gone.
    fn stop(&mut self, id: InstanceId, reason: StopReason) -> Result<(), Failed<S::Error>> {
        let Some(mut instance) = self.instances.remove(&id) else { return Ok(()) };
        let worker = instance.life.worker;
        self.stopped += 1;
        if instance.idle_memory > 0 {
            self.touch(worker);
            self.workers[worker].idle_memory -= instance.idle_memory;
        }
        instance.life.ended = Some((self.now, reason));
        self.bury(instance)
    }

    /// Writes the row of an instance that is gone, or there to the end.
    fn bury(&mut self, mut instance: Instance) -> Result<(), Failed<S::Error>> {
        if let Some(since) = instance.idle_since.filter(|since| *since < self.now) {
            instance.life.idle.push((since, self.now));
        }
        self.sink.instance(&instance.life).map_err(Failed::Sink)
    }

    /// Stops an instance that serves; its request waits again.
    fn preempt(&mut self, id: InstanceId) -> Result<(), Failed<S::Error>> {
        let Some(worker) = self.instances.get(&id).map(|known| known.life.worker) else {
            return Ok(());
        };
        self.touch(worker);
        let served = &mut self.workers[worker].running;
        let Some(position) = served.iter().position(|running| running.instance == id) else {
            return Ok(());
        };
        let running = served.remove(position);
        if running.started == self.now {
            self.vain += 1;
            if self.vain > MOST_IN_VAIN {
                return Err(Failed::Livelock { at: self.now, worker });
            }
        } else {
            self.vain = 0;
        }
        self.summary.events += 1;
        self.summary.preempted += 1;
        let request = RequestId(running.invocation as u64);
        let attempt = running.attempt + 1;
        self.waiting.insert(request, Waiting { arrived: self.now, attempt });
        let usage = self.write(worker, running, Outcome::Preempted)?;
        self.stop(id, StopReason::Preempted)?;
        let end = End::Preempted;
        self.reports.push_back(Event::InvocationEnded { request, instance: id, end, usage });
        Ok(())
    }

    /// Accounts for the time until now on a worker, on which something changes.
    fn touch(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        worker.advance(self.now);
        if !std::mem::replace(&mut worker.is_changed, true) {
            self.changed.push(index);
        }
    }

    /// Divides the cores anew where something has changed, and frees memory where there is too little.
    fn settle(&mut self) -> Result<(), Failed<S::Error>> {
        while let Some(index) = self.changed.pop() {
            self.relieve(index)?;
            let worker = &mut self.workers[index];
            if !worker.is_changed {
                continue;
            }
            if let Some(time) = worker.divide(self.sharing.as_mut(), &mut self.scratch) {
                let due = Due::Phase { worker: index as u32, change: worker.change };
                self.events.plan(self.now.saturating_add(time), due);
            }
            self.sample(index)?;
        }
        Ok(())
    }

    /// Has instances stopped until what is used of a worker's memory is no more than there is.
    fn relieve(&mut self, index: usize) -> Result<(), Failed<S::Error>> {
        let mut stopped = None;
        loop {
            let bytes = self.workers[index].excess();
            if bytes == 0 {
                return Ok(());
            }
            // What was stopped may have held less than the scheduler knew.
            if stopped.replace(self.stopped) == Some(self.stopped) {
                return Err(Failed::OutOfMemory { at: self.now, worker: index, bytes });
            }
            self.sample(index)?;
            self.report(Event::MemoryPressure { worker: WorkerId(index as u32), bytes })?;
        }
    }

    /// Tells the scheduler what instances use, where that has changed.
    fn sample(&mut self, index: usize) -> Result<(), Failed<S::Error>> {
        if !self.scheduler.reads_samples() {
            return Ok(());
        }
        let mut position = 0;
        // What is decided because of a sample may add and remove what runs: nobody is left out then,
        // since that divides the cores anew.
        while let Some(running) = self.workers[index].running.get_mut(position) {
            position += 1;
            let used = (running.rate(), running.memory);
            if std::mem::replace(&mut running.sampled, used) != used {
                let (instance, (cpu, memory)) = (running.instance, used);
                self.report(Event::Sampled { instance, cpu, memory })?;
            }
        }
        Ok(())
    }

    fn account(&mut self) -> Result<(), Failed<S::Error>> {
        for (index, worker) in self.workers.iter_mut().enumerate() {
            worker.advance(self.now);
            let (start, before) = self.accounts[index];
            if start == self.now {
                continue;
            }
            self.accounts[index] = (self.now, worker.totals);
            let totals = worker.totals - before;
            let interval = Interval { worker: index, start, end: self.now, totals };
            self.sink.interval(&interval).map_err(Failed::Sink)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Summary, Failed<S::Error>> {
        self.account()?;
        let mut rest: Vec<Instance> = std::mem::take(&mut self.instances).into_values().collect();
        rest.sort_unstable_by_key(|instance| instance.life.instance);
        for instance in rest {
            self.bury(instance)?;
        }
        let totals = self.workers.iter().fold(Totals::default(), |sum, it| sum + it.totals);
        let (end, unfinished) = (self.now, self.outstanding);
        Ok(Summary { end, unfinished, totals, ..self.summary })
    }
}
