//! The task that owns the scheduler and the state of all instances and requests.
//!
//! Everything else sends it messages and carries out what it decides; nobody else changes or even
//! sees its state, so that no two of them can disagree. What it does itself never blocks.

mod instances;
mod memory;
mod requests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::Instant;
use uncia_policy::{
    Decision, Event, FunctionId, InstanceId, Nanos, Rejection, RequestId, Scheduler, WorkerId,
};

use super::events::{Delayed, DelayedEvents, NextAttempt, QueuedEvent};
use super::hints::HintCounts;
use super::host::{InstanceHost, Log};
use super::instances::InstanceState;
use super::message::{FailedStart, Message, Order, Overview, Preemption, Readiness};
use super::relief::Relief;
use super::requests::PendingRequest;
use crate::config::Config;
use crate::function::Function;

/// Events whose time has come that are looked at before others have their turn.
const MOST_DUE: usize = 64;

/// A function as the owner knows it.
struct FunctionState {
    function: Arc<Function>,
    /// Its requests that are not answered.
    pending: usize,
    deleted: bool,
    /// Why its last start failed, until one succeeds.
    start_error: Option<String>,
}

/// What became of a request that did not run.
enum Refusal {
    Rejected(Rejection),
    /// The instance that was started for it.
    NotReady(Arc<FailedInstance>),
}

/// An instance that did not become ready.
struct FailedInstance {
    state: InstanceState,
    start: FailedStart,
}

/// The state of the platform; see the module's description.
pub(super) struct Owner<H: InstanceHost, L: Log> {
    config: Arc<Config>,
    host: H,
    log: Arc<L>,
    inbox: UnboundedSender<Message>,
    scheduler: Scheduler,
    /// From which the scheduler's time counts.
    origin: Instant,
    wake_at: Option<Nanos>,
    functions: HashMap<FunctionId, FunctionState>,
    /// By their names, of versions with the number.
    function_ids: HashMap<Arc<str>, FunctionId>,
    requests: HashMap<RequestId, PendingRequest>,
    next_request: u64,
    instances: BTreeMap<InstanceId, InstanceState>,
    /// The starts that have just failed, until the scheduler has said whose they were.
    failed_starts: HashMap<InstanceId, Arc<FailedInstance>>,
    delayed: DelayedEvents,
    /// Events of functions whose code is damaged, until it is stored anew.
    events_of_broken: HashMap<Arc<str>, Vec<QueuedEvent>>,
    /// Events that nobody wants any more, until the log is told of all of them at once.
    dropped: Vec<i64>,
    /// How many there have been.
    events_dropped: usize,
    /// Whether there is this machine, and no other.
    is_alone: bool,
    /// Who waits until nothing is left of these workers' instances.
    leaving: HashMap<WorkerId, oneshot::Sender<()>>,
    shutting_down: bool,
    /// Instances are being killed.
    closing: bool,
    shutdown_waiters: Vec<oneshot::Sender<()>>,
    finish_waiters: Vec<oneshot::Sender<()>>,
    /// Kept to spare an allocation for each event.
    decisions: Vec<Decision>,
    relief: Arc<Relief>,
    hints: Arc<HintCounts>,
}

impl<H: InstanceHost, L: Log> Owner<H, L> {
    pub(super) fn new(
        config: Arc<Config>,
        host: H,
        log: Arc<L>,
        scheduler: Scheduler,
        inbox: UnboundedSender<Message>,
        (relief, hints): (Arc<Relief>, Arc<HintCounts>),
    ) -> Self {
        Self {
            config,
            host,
            log,
            inbox,
            scheduler,
            origin: Instant::now(),
            wake_at: None,
            functions: HashMap::new(),
            function_ids: HashMap::new(),
            requests: HashMap::new(),
            next_request: 1,
            instances: BTreeMap::new(),
            failed_starts: HashMap::new(),
            delayed: DelayedEvents::default(),
            events_of_broken: HashMap::new(),
            dropped: Vec::new(),
            events_dropped: 0,
            is_alone: true,
            leaving: HashMap::new(),
            shutting_down: false,
            closing: false,
            shutdown_waiters: Vec::new(),
            finish_waiters: Vec::new(),
            decisions: Vec::new(),
            relief,
            hints,
        }
    }

    /// Tells the scheduler of this machine, then takes messages until told to finish.
    pub(super) async fn run(
        mut self,
        joined: Option<Event>,
        mut messages: UnboundedReceiver<Message>,
    ) {
        self.is_alone = joined.is_some();
        if let Some(joined) = joined {
            self.notify_scheduler(joined);
        }
        loop {
            if self.next_time().is_some_and(|next| next <= self.now()) {
                self.on_time();
            }
            let next = self.next_time();
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Some(message) => self.on_message(message),
                    // The sender is in `self`.
                    None => return,
                },
                () = sleep_until(self.origin, next) => {}
            }
            if !self.dropped.is_empty() {
                self.events_dropped += self.dropped.len();
                self.log.drop_events(std::mem::take(&mut self.dropped));
            }
            if self.instances.is_empty() {
                for waiter in self.shutdown_waiters.drain(..) {
                    // Whoever waited may have given up.
                    let _ = waiter.send(());
                }
                if !self.finish_waiters.is_empty() {
                    self.finish();
                    return;
                }
            }
        }
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// When something is due.
    fn next_time(&self) -> Option<Nanos> {
        [self.wake_at, self.delayed.next_at()].into_iter().flatten().min()
    }

    fn on_time(&mut self) {
        let now = self.now();
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
            self.notify_scheduler(Event::Wake);
        }
        for _ in 0..MOST_DUE {
            let Some(Delayed { event, unwritten }) = self.delayed.pop_due(now) else { break };
            match unwritten {
                Some((recorded, next)) => self.record_event(event, recorded, next),
                None => self.enqueue(event),
            }
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Configure(function) => self.configure(function),
            Message::Delete(function) => self.delete(&function),
            Message::Submit(submission, answer) => self.submit(*submission, answer),
            Message::Accept(event) => self.enqueue(*event),
            Message::Hint(function, hint) => self.hint(function, hint),
            Message::Ready { instance, phases, restored, initialization_ns, cgroup } => {
                if let Some(state) = self.instances.get_mut(&instance) {
                    state.cgroup = cgroup;
                }
                self.started(instance, &phases, restored, initialization_ns);
            }
            Message::Failed(failed) => self.start_failed(*failed),
            Message::Served(served) => self.served(*served),
            Message::Ended { instance, reason, idle_cpu } => {
                self.ended(instance, reason, idle_cpu);
            }
            Message::WorkerJoined { worker, capacity } => {
                self.notify_scheduler(Event::WorkerJoined { worker, capacity });
            }
            Message::WorkerLeaves(worker, waiter) => {
                self.leaving.insert(worker, waiter);
                self.notify_scheduler(Event::WorkerDrained { worker });
                self.forget_worker(worker);
            }
            Message::InUse(in_use) => self.note_use(&in_use),
            Message::NotifyScheduler(event) => self.notify_scheduler(event),
            Message::Counts(answer) => drop(answer.send(self.scheduler.counts())),
            // Whoever asked may have gone away.
            Message::Overview(answer) => drop(answer.send(self.overview())),
            Message::Living(function, answer) => {
                let rows = self
                    .instances
                    .values()
                    .filter(|state| {
                        function.as_deref().is_none_or(|it| *state.function.name == *it)
                    })
                    .map(InstanceState::row)
                    .collect();
                // Whoever asked may have gone away.
                let _ = answer.send(rows);
            }
            Message::Readiness(function, answer) => {
                let of_it = |state: &&InstanceState| {
                    state.function.id == function && state.is_ready() && !state.is_stopping
                };
                let instances = self.instances.values().filter(of_it).count();
                let state = self.functions.get(&function);
                let start_error = state.and_then(|state| state.start_error.clone());
                // Whoever asked may have gone away.
                let _ = answer.send(Readiness { instances, start_error });
            }
            Message::ShutDown(waiter) => {
                self.shutting_down = true;
                self.shutdown_waiters.push(waiter);
                self.notify_scheduler(Event::Shutdown);
            }
            Message::Close => self.closing = true,
            Message::Finish(waiter) => self.finish_waiters.push(waiter),
        }
    }

    fn overview(&self) -> Overview {
        let view = self.scheduler.view();
        let of_each = view.functions().filter_map(|of_it| {
            let function = self.functions.get(&of_it.id())?.function.clone();
            Some((function, of_it.counts()))
        });
        Overview {
            counts: self.scheduler.counts(),
            functions: of_each.collect(),
            events_dropped: self.events_dropped,
        }
    }

    fn configure(&mut self, function: Arc<Function>) {
        let id = function.id;
        let settings = function.settings(&self.config);
        let name = function.qualified_name.clone();
        let expected = function.broken.is_none().then(|| function.instance_spec("", &self.config));
        self.function_ids.insert(name.clone(), id);
        let stale = match self.functions.get_mut(&id) {
            Some(state) => {
                let old = std::mem::replace(&mut state.function, function);
                !old.same_instances(&state.function)
            }
            None => {
                let state =
                    FunctionState { function, pending: 0, deleted: false, start_error: None };
                self.functions.insert(id, state);
                false
            }
        };
        // First: what is started by the new settings is of the new version.
        if stale {
            self.host.forget(&name);
            self.notify_scheduler(Event::FunctionUpdated { function: id });
        }
        if let Some(spec) = expected {
            self.host.expect(spec);
        }
        self.notify_scheduler(Event::FunctionConfigured { function: id, settings });
        for event in self.events_of_broken.remove(&name).unwrap_or_default() {
            self.enqueue(event);
        }
    }

    fn delete(&mut self, function: &Function) {
        if self.function_ids.get(&function.qualified_name) == Some(&function.id) {
            self.function_ids.remove(&function.qualified_name);
            self.host.forget(&function.qualified_name);
        }
        for Delayed { event, unwritten } in self.delayed.take_function(&function.qualified_name) {
            match unwritten {
                // It ran, which a row is to say whatever becomes of the event.
                Some((recorded, next)) => {
                    let next = match next {
                        NextAttempt::None => NextAttempt::None,
                        // It is dropped then, since there is no function.
                        NextAttempt::AfterMs(_) => NextAttempt::AfterMs(0),
                    };
                    self.record_event(event, recorded, next);
                }
                None => self.dropped.push(event.id),
            }
        }
        let broken = self.events_of_broken.remove(&function.qualified_name).unwrap_or_default();
        self.dropped.extend(broken.iter().map(|event| event.id));
        if let Some(state) = self.functions.get_mut(&function.id) {
            state.deleted = true;
        }
        self.notify_scheduler(Event::FunctionDeleted { function: function.id });
        self.forget_function(function.id);
    }

    /// Drops a deleted function of which no request is left.
    fn forget_function(&mut self, id: FunctionId) {
        if self.functions.get(&id).is_some_and(|state| state.deleted && state.pending == 0) {
            self.functions.remove(&id);
        }
    }

    /// Drops a worker that leaves, once nothing of its instances is left.
    fn forget_worker(&mut self, worker: WorkerId) {
        if self.leaving.contains_key(&worker)
            && self.instances.values().all(|instance| instance.worker != worker)
            && let Some(waiter) = self.leaving.remove(&worker)
        {
            self.notify_scheduler(Event::WorkerGone { worker });
            // Whoever waited may have given up.
            let _ = waiter.send(());
        }
    }

    /// Tells the scheduler what happened, and does what it decides.
    fn notify_scheduler(&mut self, event: Event) {
        let mut decisions = std::mem::take(&mut self.decisions);
        self.scheduler.on_event(self.now(), &event, &mut decisions);
        for decision in decisions.drain(..) {
            self.carry_out(decision);
        }
        self.decisions = decisions;
    }

    /// Tells the scheduler after the decisions at hand are carried out.
    fn notify_scheduler_later(&mut self, event: Event) {
        // The receiver lives as long as this.
        let _ = self.inbox.send(Message::NotifyScheduler(event));
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Start { instance, function, worker } => {
                self.start(instance, function, worker);
            }
            // How it is paused, its own task knows best.
            Decision::Assign { request, instance, resume: _ } => self.assign(request, instance),
            Decision::Reject { request, reason } => {
                let refusal = match reason {
                    Rejection::StartFailed(instance) => {
                        self.failed_starts.get(&instance).cloned().map(Refusal::NotReady)
                    }
                    _ => None,
                };
                self.refuse(request, &refusal.unwrap_or(Refusal::Rejected(reason)));
            }
            Decision::Pause { instance, how } => self.order(instance, Order::Pause(how)),
            Decision::Stop { instance, reason } => self.stop(instance, Order::Stop(reason)),
            Decision::Preempt { instance } => {
                self.stop(instance, Order::Preempt(Preemption::Room));
            }
            Decision::SetCpu { instance, assignment } => {
                self.order(instance, Order::SetCpu(assignment));
            }
            Decision::Hold { instance } => {
                if let Some(state) = self.instances.get_mut(&instance) {
                    state.hold();
                }
            }
            Decision::Release { instance } => {
                if let Some(state) = self.instances.get_mut(&instance) {
                    state.release();
                }
            }
            Decision::WakeAt(at) => self.wake_at = Some(at),
        }
    }

    /// Answers what is left: there is no instance any more, and there will be none.
    fn finish(&mut self) {
        let mut left: Vec<RequestId> = self.requests.keys().copied().collect();
        left.sort_unstable();
        for request in left {
            self.refuse(request, &Refusal::Rejected(Rejection::ShuttingDown));
        }
        for waiter in self.finish_waiters.drain(..) {
            // Whoever waited may have given up.
            let _ = waiter.send(());
        }
    }
}

/// Sleeps until the scheduler's time is `at`, or for ever.
async fn sleep_until(origin: Instant, at: Option<Nanos>) {
    match at {
        Some(at) => tokio::time::sleep_until(origin + Duration::from_nanos(at)).await,
        None => std::future::pending().await,
    }
}
