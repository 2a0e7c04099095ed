//! The loop: what is due next happens, the scheduler decides, and it is done.

mod failing;
mod machines;
mod serving;

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use uncia_arrivals::RandomStream;
use uncia_policy::sharing::{self, Sharing};
use uncia_policy::{
    Capacity, Decision, Event, FunctionId, Hint, InstanceId, Nanos, Policies, RequestId, Sample,
    Scheduler, WorkerId,
};

use crate::check::{LATEST, SettingError, check};
use crate::events::{Due, Events};
use crate::running::{Meter, Running};
use crate::setting::{Setting, Trace};
use crate::totals::{Integral, Totals};
use crate::worker::{Scratch, Worker};
use crate::{Life, Sink};
use failing::Failures;

/// After so long in which nothing runs or starts, what waits waits for ever.
const PATIENCE: Nanos = 24 * 3_600 * 1_000_000_000;

/// So often a request is begun, at most.
const MOST_ATTEMPTS: u32 = 10_000;

/// What the whole simulation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Summary {
    /// Things that happened: arrivals, ends of starts and phases, preemptions, failures, timers.
    pub events: u64,
    /// When it ended.
    pub end: Nanos,
    /// Requests that arrived.
    pub arrived: u64,
    /// Requests that ran to their end.
    pub served: u64,
    /// Attempts that were preempted.
    pub preempted: u64,
    /// Attempts whose worker failed.
    pub lost: u64,
    /// Requests that were turned away.
    pub rejected: u64,
    /// Requests that had not ended when the simulation did.
    pub unfinished: u64,
    /// Instances that were started.
    pub starts: u64,
    /// Failures of workers.
    pub failures: u64,
    /// Hints for which instances were to be ready.
    pub hints_taken: u64,
    /// Hints that were refused or ignored.
    pub hints_refused: u64,
    /// CPU that those who arrived need, micro-vCPU x ns.
    pub cpu_offered: Integral,
    /// The number of requests that had arrived and not ended, over time: requests x ns.
    pub in_system: Integral,
    /// Integrals over all workers.
    pub totals: Totals,
    /// What attempts had used that still ran at the end: of these there is no row.
    pub running: Meter,
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
    /// A request that is cut short each time before its end would be begun for ever.
    #[error(
        "at {at} ns: request {request}, of the function {function}, was begun {attempts} times, and cut \
         short each time; it is too long for how often workers fail or need its memory"
    )]
    NeverEnds {
        /// When.
        at: Nanos,
        /// Its position in the trace.
        request: usize,
        /// The name of its function.
        function: String,
        /// How often it was begun.
        attempts: u32,
    },
    /// Requests wait, and nothing will ever serve them.
    #[error("{requests} requests wait, and the policies start nothing for them")]
    Stuck {
        /// How many.
        requests: u64,
    },
    /// Virtual time has come to an end.
    #[error("it would go on for more than 292 years: {requests} requests are left")]
    Endless {
        /// How many.
        requests: u64,
    },
    /// A row was not taken.
    #[error(transparent)]
    Sink(E),
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

/// A request that waits again.
#[derive(Debug, Clone, Copy)]
struct Again {
    since: Nanos,
    attempt: u32,
}

/// An instance that is there.
struct Instance {
    id: InstanceId,
    life: Life,
    idle_since: Option<Nanos>,
    /// Since when it idles on the account of hints.
    on_hint_since: Option<Nanos>,
    idle_memory: u64,
}

impl Instance {
    /// It idles no more.
    fn end_idle(&mut self, now: Nanos) {
        self.end_hint(now);
        if let Some(since) = self.idle_since.take().filter(|since| *since < now) {
            self.life.idle.push((since, now));
        }
    }

    /// What it idles is no more on the account of hints.
    fn end_hint(&mut self, now: Nanos) {
        let on_hint = self.on_hint_since.take();
        if let (Some(since), Some(on_hint)) = (self.idle_since, on_hint) {
            self.life.hint_idle += now - on_hint.max(since);
        }
    }
}

struct Simulation<'a, S> {
    setting: &'a Setting,
    trace: &'a Trace,
    sink: &'a mut S,
    scheduler: Scheduler,
    reads_samples: bool,
    sharing: Box<dyn Sharing>,
    starts: RandomStream,
    failures: Failures,
    now: Nanos,
    events: Events,
    wake_at: Option<Nanos>,
    next_arrival: usize,
    /// When something last started, ran or arrived.
    last_progress: Nanos,
    /// Instances that are being started.
    starting: u64,
    outstanding: u64,
    /// Preemptions of what had just begun, since another.
    vain: u64,
    /// Instances that were stopped.
    stopped: u64,
    /// Requests whose last attempt was cut short.
    again: FxHashMap<RequestId, Again>,
    /// By the instances' slots.
    instances: Vec<Option<Instance>>,
    workers: Vec<Worker>,
    accounts: Vec<(Nanos, Totals)>,
    /// Workers on which something has changed.
    changed: Vec<usize>,
    /// What the scheduler is to be told.
    reports: VecDeque<Event>,
    decisions: Vec<Decision>,
    samples: Vec<Sample>,
    /// Attempts that have run to their end.
    ended: Vec<Running>,
    scratch: Scratch,
    summary: Summary,
}

impl<'a, S: Sink> Simulation<'a, S> {
    fn new(setting: &'a Setting, trace: &'a Trace, sink: &'a mut S) -> Result<Self, SettingError> {
        let policies = Policies::from_names(&setting.policies)?;
        let scheduler = Scheduler::with_parameters(policies, setting.parameters, setting.seed);
        Ok(Self {
            setting,
            trace,
            sink,
            reads_samples: scheduler.reads_samples(),
            scheduler,
            sharing: sharing::from_name(&setting.sharing)?,
            starts: RandomStream::new(setting.seed, "starts of instances"),
            failures: Failures::new(setting),
            now: 0,
            events: Events::new(setting.workers.len()),
            wake_at: None,
            next_arrival: 0,
            last_progress: 0,
            starting: 0,
            outstanding: 0,
            vain: 0,
            stopped: 0,
            again: FxHashMap::default(),
            instances: Vec::new(),
            workers: setting.workers.iter().map(|capacity| Worker::new(*capacity)).collect(),
            accounts: vec![(0, Totals::default()); setting.workers.len()],
            changed: Vec::new(),
            reports: VecDeque::new(),
            decisions: Vec::new(),
            samples: Vec::new(),
            ended: Vec::new(),
            scratch: Scratch::default(),
            summary: Summary::default(),
        })
    }

    fn set_up(&mut self) -> Result<(), Failed<S::Error>> {
        for index in 0..self.setting.workers.len() {
            self.join(index)?;
        }
        for (index, function) in self.setting.functions.iter().enumerate() {
            let (function, settings) = (FunctionId(index as u64), function.settings);
            self.report(Event::FunctionConfigured { function, settings })?;
        }
        if let Some(interval) = self.setting.interval {
            self.events.plan(interval, Due::Account);
        }
        self.plan_failures();
        Ok(())
    }

    /// Has the scheduler use a worker from now on.
    fn join(&mut self, index: usize) -> Result<(), Failed<S::Error>> {
        // Instances are bounded by CPU and memory, not by their number.
        let capacity = Capacity { resources: self.setting.workers[index], max_instances: 1 << 20 };
        self.report(Event::WorkerJoined { worker: WorkerId(index as u32), capacity })
    }

    /// When the policies know of the next request.
    fn next_arrival(&self) -> Option<Nanos> {
        let invocation = self.trace.invocations.get(self.next_arrival)?;
        Some(invocation.arrival.saturating_add(self.setting.latency))
    }

    fn run(&mut self) -> Result<(), Failed<S::Error>> {
        loop {
            let arrival = self.next_arrival();
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
            self.check_progress(at)?;
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

    /// Fails if what comes next, at `at`, is beyond all time, or only clocks that tick on while requests
    /// wait.
    fn check_progress(&self, at: Nanos) -> Result<(), Failed<S::Error>> {
        let requests = self.outstanding;
        if at > LATEST {
            return Err(Failed::Endless { requests });
        }
        let is_quiet = self.starting == 0
            && self.events.phases() == 0
            && self.next_arrival == self.trace.invocations.len();
        if is_quiet
            && requests > 0
            && at - self.last_progress > PATIENCE
            // One that is gone comes back.
            && self.workers.iter().all(|worker| worker.is_up)
        {
            return Err(Failed::Stuck { requests });
        }
        Ok(())
    }

    fn pass_to(&mut self, at: Nanos) {
        let time = Integral::from(at - self.now);
        self.summary.in_system += Integral::from(self.outstanding) * time;
        self.now = at;
    }

    /// The policies know of a request.
    fn arrive(&mut self) -> Result<(), Failed<S::Error>> {
        let invocation = &self.trace.invocations[self.next_arrival];
        let function = FunctionId(u64::from(invocation.function));
        let request = RequestId(self.next_arrival as u64);
        self.summary.cpu_offered += self.trace.cpu(invocation);
        self.next_arrival += 1;
        self.outstanding += 1;
        self.summary.events += 1;
        self.summary.arrived += 1;
        self.summary.in_system += Integral::from(self.now - invocation.arrival);
        self.last_progress = self.now;
        let hint = self.trace.hints.get(&(self.next_arrival - 1)).copied();
        self.report(Event::Arrival { request, function, can_wait: true })?;
        match hint {
            Some(hint) => self.hint(function, hint),
            None => Ok(()),
        }
    }

    /// Tells the scheduler what a request that has arrived says of those to come.
    fn hint(&mut self, function: FunctionId, hint: Hint) -> Result<(), Failed<S::Error>> {
        let mut decisions = std::mem::take(&mut self.decisions);
        let answer = self.scheduler.on_hint(self.now, function, hint, &mut decisions);
        let count = if answer.is_taken() {
            &mut self.summary.hints_taken
        } else {
            &mut self.summary.hints_refused
        };
        *count += 1;
        self.carry_out(decisions)?;
        self.report_all()
    }

    fn happen(&mut self, due: Due) -> Result<(), Failed<S::Error>> {
        match due {
            Due::Ready(instance) => self.ready(instance),
            Due::Phase(worker) => self.end_phases(worker),
            Due::Failure(worker, lasts) => self.fail(worker, lasts),
            Due::Recovery(worker) => self.recover(worker),
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

    /// Tells the scheduler what happened, and does what it decides.
    fn report(&mut self, event: Event) -> Result<(), Failed<S::Error>> {
        self.reports.push_back(event);
        self.report_all()
    }

    /// Tells the scheduler what instances use, and does what it decides.
    fn report_samples(&mut self) -> Result<(), Failed<S::Error>> {
        if self.samples.is_empty() {
            return Ok(());
        }
        let mut decisions = std::mem::take(&mut self.decisions);
        self.scheduler.on_samples(self.now, &self.samples, &mut decisions);
        self.samples.clear();
        self.carry_out(decisions)?;
        self.report_all()
    }

    fn report_all(&mut self) -> Result<(), Failed<S::Error>> {
        while let Some(event) = self.reports.pop_front() {
            let mut decisions = std::mem::take(&mut self.decisions);
            self.scheduler.on_event(self.now, &event, &mut decisions);
            self.carry_out(decisions)?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Summary, Failed<S::Error>> {
        self.account()?;
        // What has arrived and is not known to the policies yet.
        let on_its_way = &self.trace.invocations[self.next_arrival..];
        for invocation in on_its_way.iter().take_while(|it| it.arrival <= self.now) {
            self.outstanding += 1;
            self.summary.arrived += 1;
            self.summary.cpu_offered += self.trace.cpu(invocation);
            self.summary.in_system += Integral::from(self.now - invocation.arrival);
        }
        let mut rest: Vec<Instance> = self.instances.drain(..).flatten().collect();
        rest.sort_unstable_by_key(|instance| instance.life.instance);
        for instance in rest {
            self.bury(instance)?;
        }
        let totals = self.workers.iter().fold(Totals::default(), |sum, it| sum + it.totals);
        let running = self.workers.iter().fold(Meter::default(), |sum, it| sum.with(it.used()));
        let (end, unfinished) = (self.now, self.outstanding);
        Ok(Summary { end, unfinished, totals, running, ..self.summary })
    }
}
