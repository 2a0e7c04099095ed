//! A driver with a virtual clock and no instances at all: it carries out what the scheduler decides,
//! and checks after each event that the scheduler keeps its promises.

#![allow(dead_code)]

use std::collections::{BTreeMap, BTreeSet};

use uncia_policy::{
    Capacity, Counts, Decision, End, Event, FunctionId, FunctionSettings, Hint, HintAnswer,
    InstanceId, Nanos, Parameters, Pause, Policies, PolicyNames, Rejection, RequestId, Resources,
    Scheduler, Usage, WorkerId,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Starting,
    /// It waits, or serves.
    Running,
    Preempting,
    Stopping,
    /// It is gone, but not all of its requests are reported.
    Gone,
}

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub function: FunctionId,
    pub worker: WorkerId,
    pub settings: FunctionSettings,
    pub doing: Doing,
    pub serving: Vec<RequestId>,
    pub paused: Option<Pause>,
    pub since: Nanos,
    /// Whether what it idles is on the account of hints.
    pub held: bool,
}

impl Instance {
    pub(crate) fn is_idle(&self) -> bool {
        self.doing == Doing::Running && self.serving.is_empty()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.doing == Doing::Running && !self.serving.is_empty()
    }
}

pub(crate) struct Driver {
    pub scheduler: Scheduler,
    pub now: Nanos,
    pub wake_at: Option<Nanos>,
    /// It is woken at multiples of this alone.
    pub clock: Nanos,
    pub next_request: u64,
    pub settings: BTreeMap<FunctionId, FunctionSettings>,
    pub workers: BTreeMap<WorkerId, Capacity>,
    pub instances: BTreeMap<InstanceId, Instance>,
    /// Requests that are neither served nor answered, and whether they can wait.
    pub waiting: BTreeMap<RequestId, (FunctionId, bool)>,
    pub answered: BTreeSet<RequestId>,
    pub rejected: BTreeMap<RequestId, Rejection>,
    /// How often each request was assigned.
    pub attempts: BTreeMap<RequestId, u32>,
    pub preempted: u32,
    pub started: u32,
    /// Whether an instance may idle for longer than its function's keep-alive.
    keeps_longer: bool,
    /// Whether what is spot or preemptible takes up no room.
    reserves_only: bool,
    /// Every instance so far, in the order of starts.
    pub starts: Vec<InstanceId>,
    /// Every decision so far.
    pub log: Vec<Decision>,
}

impl Driver {
    pub(crate) fn new(names: &PolicyNames, seed: u64) -> Self {
        Self::with_parameters(names, Parameters::default(), seed)
    }

    pub(crate) fn with_parameters(names: &PolicyNames, parameters: Parameters, seed: u64) -> Self {
        let policies = Policies::from_names(names).expect("policies that exist");
        Self {
            scheduler: Scheduler::with_parameters(policies, parameters, seed),
            keeps_longer: matches!(&*names.retention, "histogram" | "hints"),
            reserves_only: names.admission == "leopard",
            now: 0,
            wake_at: None,
            clock: 1,
            next_request: 0,
            settings: BTreeMap::new(),
            workers: BTreeMap::new(),
            instances: BTreeMap::new(),
            waiting: BTreeMap::new(),
            answered: BTreeSet::new(),
            rejected: BTreeMap::new(),
            attempts: BTreeMap::new(),
            preempted: 0,
            started: 0,
            starts: Vec::new(),
            log: Vec::new(),
        }
    }

    pub(crate) fn join(&mut self, worker: u32, resources: Resources, max_instances: u32) {
        let (worker, capacity) = (WorkerId(worker), Capacity { resources, max_instances });
        self.workers.insert(worker, capacity);
        self.send(Event::WorkerJoined { worker, capacity });
    }

    /// The worker's capacity as it was counts on for what it has still.
    pub(crate) fn drain_worker(&mut self, worker: WorkerId) {
        let before = self.starts.len();
        self.send(Event::WorkerDrained { worker });
        for id in &self.starts[before..] {
            assert_ne!(self.instances[id].worker, worker, "nothing starts where all is to end");
        }
        for instance in self.instances.values().filter(|instance| instance.worker == worker) {
            assert!(!instance.is_idle(), "what is idle is stopped at once");
        }
    }

    pub(crate) fn lose_worker(&mut self, worker: WorkerId) {
        self.workers.remove(&worker);
        let gone: Vec<InstanceId> =
            self.nths(|instance| instance.worker == worker).into_iter().collect();
        for id in gone {
            self.requeue_all(id);
        }
        self.send(Event::WorkerGone { worker });
    }

    pub(crate) fn configure(&mut self, function: u64, settings: FunctionSettings) {
        let function = FunctionId(function);
        self.settings.insert(function, settings);
        self.send(Event::FunctionConfigured { function, settings });
    }

    pub(crate) fn arrive(&mut self, function: u64, can_wait: bool) -> RequestId {
        let (request, function) = (RequestId(self.next_request), FunctionId(function));
        self.next_request += 1;
        self.waiting.insert(request, (function, can_wait));
        self.send(Event::Arrival { request, function, can_wait });
        request
    }

    pub(crate) fn ready(&mut self, instance: InstanceId) {
        let known = self.instances.get_mut(&instance).expect("an instance");
        known.doing = Doing::Running;
        known.since = self.now;
        self.send(Event::InstanceReady { instance, initialization: 10 });
    }

    pub(crate) fn fail(&mut self, instance: InstanceId) {
        self.instances.remove(&instance);
        self.send(Event::InstanceFailed { instance });
    }

    /// The `n`th request of the instance ends.
    pub(crate) fn end(&mut self, instance: InstanceId, n: usize, end: End) {
        let known = self.instances.get_mut(&instance).expect("an instance");
        let request = known.serving.remove(n % known.serving.len());
        let function = known.function;
        known.since = self.now;
        if end != End::Survives {
            known.doing = Doing::Gone;
        }
        self.forget(instance);
        if end == End::Preempted {
            self.waiting.insert(request, (function, true));
        } else {
            assert!(self.answered.insert(request), "answered once");
        }
        let usage = Usage { duration: 20 * (function.0 + 1), cpu: Some(3), memory: Some(1) };
        self.send(Event::InvocationEnded { request, instance, end, usage });
    }

    pub(crate) fn undelivered(&mut self, instance: InstanceId, n: usize) {
        let known = self.instances.get_mut(&instance).expect("an instance");
        let request = known.serving.remove(n % known.serving.len());
        known.doing = Doing::Gone;
        self.waiting.insert(request, (known.function, true));
        self.forget(instance);
        self.send(Event::Undelivered { request, instance });
    }

    /// The instance is gone, whatever it did.
    pub(crate) fn gone(&mut self, instance: InstanceId) {
        self.requeue_all(instance);
        self.send(Event::InstanceGone { instance });
    }

    fn requeue_all(&mut self, instance: InstanceId) {
        let known = self.instances.remove(&instance).expect("an instance");
        for request in known.serving {
            self.waiting.insert(request, (known.function, true));
        }
    }

    /// Forgets an instance that is gone, once nothing of it is left to report.
    fn forget(&mut self, instance: InstanceId) {
        let known = &self.instances[&instance];
        if known.doing == Doing::Gone && known.serving.is_empty() {
            self.instances.remove(&instance);
        }
    }

    /// A request of the function says what comes.
    pub(crate) fn hint(&mut self, function: u64, hint: Hint) -> HintAnswer {
        let mut decisions = Vec::new();
        let answer = self.scheduler.on_hint(self.now, FunctionId(function), hint, &mut decisions);
        self.follow(decisions);
        answer
    }

    pub(crate) fn update(&mut self, function: u64) {
        self.send(Event::FunctionUpdated { function: FunctionId(function) });
    }

    /// Lets time pass, with the wake-ups that were asked for.
    pub(crate) fn pass(&mut self, time: Nanos) {
        let until = self.now + time;
        while let Some(at) = self.wakes().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.wake_at = None;
            self.send(Event::Wake);
        }
        self.now = until;
    }

    /// When it is woken.
    pub(crate) fn wakes(&self) -> Option<Nanos> {
        self.wake_at.map(|at| at.checked_next_multiple_of(self.clock).unwrap_or(at))
    }

    pub(crate) fn send(&mut self, event: Event) {
        let mut decisions = Vec::new();
        self.scheduler.on_event(self.now, &event, &mut decisions);
        self.follow(decisions);
    }

    fn follow(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            self.log.push(decision);
            self.carry_out(decision);
        }
        self.check();
    }

    /// Instances of the function that count towards its limit.
    pub(crate) fn instances_of(&self, function: FunctionId) -> u32 {
        self.scheduler.view().function(function).map_or(0, |function| function.instances())
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Start { instance, function, worker } => {
                assert!(self.workers.contains_key(&worker), "it starts on a worker");
                self.started += 1;
                assert!(self.starts.last() < Some(&instance), "names are in the order of starts");
                self.starts.push(instance);
                let settings = self.settings[&function];
                let (doing, since) = (Doing::Starting, self.now);
                let (serving, paused) = (Vec::new(), None);
                let held = false;
                let new =
                    Instance { function, worker, settings, doing, serving, paused, since, held };
                assert!(self.instances.insert(instance, new).is_none(), "a name is used once");
            }
            Decision::Assign { request, instance, resume } => {
                let (function, _) = self.waiting.remove(&request).expect("a request that waits");
                let known = self.instances.get_mut(&instance).expect("a live instance");
                assert_eq!(known.function, function, "an instance serves its own function");
                assert_eq!(known.doing, Doing::Running, "it can serve");
                assert_eq!(known.paused.take(), resume, "what is paused is resumed first");
                let settings = known.settings;
                assert!(
                    (known.serving.len() as u32) < settings.concurrency,
                    "no more than it takes"
                );
                let kept = self.settings[&function].min_instances > 0;
                let is_fresh = self.now < known.since + settings.keep_alive;
                let kept = kept || self.keeps_longer;
                assert!(kept || !known.is_idle() || is_fresh, "kept too long");
                known.serving.push(request);
                known.held = false;
                *self.attempts.entry(request).or_default() += 1;
            }
            Decision::Reject { request, reason } => {
                let (function, can_wait) = self.waiting.remove(&request).expect("it waits");
                assert!(self.answered.insert(request), "answered once");
                self.rejected.insert(request, reason);
                let limit = matches!(reason, Rejection::FunctionLimit);
                assert!(!(limit && can_wait), "what can wait does");
                if limit {
                    let max = self.settings[&function].max_in_flight;
                    assert!(self.in_flight_of(function) >= max, "the limit is reached");
                }
            }
            Decision::Pause { instance, how } => {
                let known = self.instances.get_mut(&instance).expect("a live instance");
                assert!(known.is_idle(), "only what idles is paused");
                let settings = self.settings[&known.function];
                assert_eq!(Some(how), settings.pause, "as its function has it");
                assert_eq!(known.paused.replace(how), None, "paused once");
                assert!(self.now >= known.since + settings.pause_after, "paused too early");
            }
            Decision::Stop { instance, .. } => {
                let known = self.instances.get_mut(&instance).expect("a live instance");
                assert!(known.serving.is_empty(), "only what serves nothing is stopped");
                assert!(!matches!(known.doing, Doing::Stopping | Doing::Gone), "stopped once");
                known.doing = Doing::Stopping;
            }
            Decision::Hold { instance } => {
                let known = self.instances.get_mut(&instance).expect("a live instance");
                assert!(known.is_idle(), "only what idles is kept on a hint's account");
                known.held = true;
            }
            Decision::Release { instance } => {
                let known = self.instances.get_mut(&instance).expect("a live instance");
                assert!(known.is_idle() && known.held, "only what is held is released");
                known.held = false;
            }
            Decision::Preempt { instance } => {
                let known = self.instances.get_mut(&instance).expect("a live instance");
                assert!(known.is_active(), "only what serves is preempted, and once");
                assert!(known.settings.preemptible, "only what is preemptible");
                known.doing = Doing::Preempting;
                self.preempted += 1;
            }
            Decision::SetCpu { instance, .. } => {
                assert!(self.instances.contains_key(&instance), "a live instance");
            }
            Decision::WakeAt(at) => self.wake_at = Some(at),
        }
    }

    fn in_flight_of(&self, function: FunctionId) -> u32 {
        self.scheduler.view().function(function).map_or(0, |function| function.in_flight())
    }

    /// What the scheduler counts is what is.
    fn check(&self) {
        let count =
            |of: &dyn Fn(&Instance) -> bool| self.instances.values().filter(|i| of(i)).count();
        let idle = count(&Instance::is_idle);
        let counts = self.scheduler.counts();
        let serving: usize = self.instances.values().map(|instance| instance.serving.len()).sum();
        assert_eq!(
            counts,
            Counts {
                starting: count(&|instance| instance.doing == Doing::Starting),
                busy: count(&|instance| instance.is_active() || instance.doing == Doing::Preempting),
                idle,
                frozen: count(
                    &|instance| instance.paused == Some(Pause::Freeze) && instance.is_idle()
                ),
                scaled_down: count(
                    &|instance| instance.paused == Some(Pause::ScaleDown) && instance.is_idle()
                ),
                stopping: count(&|instance| matches!(
                    instance.doing,
                    Doing::Stopping | Doing::Gone
                )),
                waiting: self.waiting.len() - counts.backlog,
                backlog: counts.backlog,
            }
        );
        assert_eq!(self.scheduler.instances(), self.instances.len());
        assert_eq!(self.scheduler.in_flight() as usize, counts.waiting + serving);
        for (function, settings) in &self.settings {
            assert!(
                self.instances_of(*function) <= settings.max_instances,
                "more than it may have"
            );
            let view = self.scheduler.view();
            let on_hint = view.function(*function).map_or(0, |function| function.on_hint());
            assert!(on_hint <= settings.hint_instances, "no more than its budget");
        }
        for (id, known) in self.instances.iter().filter(|(_, known)| known.is_idle()) {
            let view = self.scheduler.view().instance(*id).expect("an instance");
            assert_eq!(known.held, view.is_on_hint(), "what is counted as held is");
        }
        assert!(self.scheduler.timers() <= idle, "at most one timer for each idle instance");
        if self.settings.values().all(|settings| settings.min_instances == 0) {
            assert_eq!(self.scheduler.timers(), idle, "one timer for each idle instance");
        }
        let woken = self.scheduler.timers() == 0 || self.wake_at.is_some();
        assert!(woken, "somebody wakes it for the idle ones");
        for worker in self.scheduler.view().workers() {
            let on = |instance: &&Instance| instance.worker == worker.id();
            let takes_room =
                |instance: &&Instance| !matches!(instance.doing, Doing::Stopping | Doing::Gone);
            let mut allocated = Resources::ZERO;
            let mut instances = 0;
            for instance in self.instances.values().filter(on).filter(takes_room) {
                allocated += if self.reserves_only {
                    instance.settings.reservation()
                } else {
                    instance.settings.allocation
                };
                instances += 1;
            }
            let capacity = self.workers[&worker.id()];
            assert_eq!((worker.allocated(), worker.instances()), (allocated, instances));
            assert!(allocated.fits(capacity.resources), "no more allocated than there is");
            assert!(instances <= capacity.max_instances, "no more instances than it takes");
            let spare = worker.idle().all(|instance| instance.serving() == 0);
            assert!(spare, "only what serves nothing is idle");
        }
    }

    /// The instances of which this holds.
    pub(crate) fn nths(&self, of: impl Fn(&Instance) -> bool) -> Vec<InstanceId> {
        self.instances.iter().filter(|(_, known)| of(known)).map(|(id, _)| *id).collect()
    }

    /// One of the instances of which this holds.
    pub(crate) fn nth(&self, n: usize, of: impl Fn(&Instance) -> bool) -> Option<InstanceId> {
        let matching = self.nths(of);
        (!matching.is_empty()).then(|| matching[n % matching.len()])
    }

    /// Ends everything that goes on, without failures, until nothing is left to do.
    pub(crate) fn finish(&mut self) {
        for _ in 0..10_000 {
            let kept = self.scheduler.view().functions().any(|f| f.settings().min_instances > 0);
            let rest = if kept { self.nths(|i| !i.is_idle()).len() } else { self.instances.len() };
            if self.waiting.is_empty() && rest == 0 {
                return;
            }
            if let Some(id) = self.nth(0, |instance| instance.doing == Doing::Starting) {
                self.ready(id);
            }
            if let Some(id) = self.nth(0, Instance::is_active) {
                self.end(id, 0, End::Survives);
            }
            if let Some(id) = self.nth(0, |instance| instance.doing == Doing::Preempting) {
                self.end(id, 0, End::Preempted);
            }
            if let Some(id) = self.nth(0, |i| matches!(i.doing, Doing::Stopping | Doing::Gone)) {
                self.gone(id);
            }
            self.pass(100);
        }
        panic!("it does not come to rest: {:?}, {:?}", self.waiting, self.instances);
    }
}
