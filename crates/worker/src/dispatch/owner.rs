//! The task that owns the scheduler and the state of all instances and requests.
//!
//! Everything else sends it messages and carries out what it decides; nobody else changes or even
//! sees its state, so that no two of them can disagree. What it does itself never blocks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::Instant;
use uncia_clock::Moment;
use uncia_policy::{
    Decision, End, Event, FunctionId, InstanceId, Nanos, Rejection, RequestId, Scheduler, Usage,
};

use super::events::{AttemptEnd, DelayedEvents, QueuedEvent};
use super::host::{Host, Log};
use super::instance_task::{InstanceTask, lost_start};
use super::instances::InstanceState;
use super::message::{FailedStart, Message, NextAttempt, Order, ServeResult, Served};
use super::requests::{PendingRequest, Source};
use super::row::{self, Execution};
use super::{Answer, Answered, Submission};
use crate::config::Config;
use crate::function::Function;
use crate::ids;
use crate::instance::Outcome;
use crate::meterlog::{EventUpdate, LogError, Recorded};

/// Between two looks whether the function of an event can run again.
const BROKEN_RETRY_MS: u64 = 1_000;

/// A function as the owner knows it.
struct FunctionState {
    function: Arc<Function>,
    /// Its requests that are not answered.
    pending: usize,
    deleted: bool,
}

/// What became of a request that did not run.
enum Refusal {
    Rejected(Rejection),
    /// The instance that was started for it.
    NotReady(Box<InstanceState>, Box<FailedStart>),
}

/// The state of the platform; see the module's description.
pub struct Owner<H: Host, L: Log> {
    config: Arc<Config>,
    host: H,
    log: Arc<L>,
    inbox: UnboundedSender<Message>,
    scheduler: Scheduler,
    /// From which the scheduler's time counts.
    origin: Instant,
    wake_at: Option<Nanos>,
    functions: HashMap<FunctionId, FunctionState>,
    function_ids: HashMap<Arc<str>, FunctionId>,
    requests: HashMap<RequestId, PendingRequest>,
    next_request: u64,
    instances: BTreeMap<InstanceId, InstanceState>,
    /// The starts that have just failed, until the scheduler has said whose they were.
    failed_starts: HashMap<InstanceId, (Box<InstanceState>, Box<FailedStart>)>,
    delayed: DelayedEvents,
    shutting_down: bool,
    emptied: Vec<oneshot::Sender<()>>,
    finished: Vec<oneshot::Sender<()>>,
    /// Kept to spare an allocation for each event.
    decisions: Vec<Decision>,
}

impl<H: Host, L: Log> Owner<H, L> {
    pub fn new(
        config: Arc<Config>,
        host: H,
        log: Arc<L>,
        scheduler: Scheduler,
        inbox: UnboundedSender<Message>,
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
            shutting_down: false,
            emptied: Vec::new(),
            finished: Vec::new(),
            decisions: Vec::new(),
        }
    }

    /// Tells the scheduler of this machine, then takes messages until told to finish.
    pub async fn run(mut self, joined: Event, mut messages: UnboundedReceiver<Message>) {
        self.tell(joined);
        loop {
            let next = [self.wake_at, self.delayed.next_at()].into_iter().flatten().min();
            tokio::select! {
                biased;
                message = messages.recv() => match message {
                    Some(message) => self.on_message(message),
                    // The sender is in `self`.
                    None => return,
                },
                () = sleep_until(self.origin, next) => self.on_time(),
            }
            if self.instances.is_empty() {
                for emptied in self.emptied.drain(..) {
                    // Whoever waited may have given up.
                    let _ = emptied.send(());
                }
                if !self.finished.is_empty() {
                    self.finish();
                    return;
                }
            }
        }
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn on_time(&mut self) {
        let now = self.now();
        if self.wake_at.is_some_and(|at| at <= now) {
            self.wake_at = None;
            self.tell(Event::Wake);
        }
        while let Some(event) = self.delayed.pop_due(now) {
            self.enqueue(event);
        }
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Configure(function) => self.configure(function),
            Message::Delete(function) => self.delete(&function),
            Message::Submit(submission, answer) => self.submit(*submission, answer),
            Message::Accept(event) => self.enqueue(event),
            Message::EventRecorded { event, next, result } => {
                self.event_recorded(event, next, result);
            }
            Message::Ready { instance, phases, initialization_ns } => {
                let Some(state) = self.instances.get_mut(&instance) else { return };
                state.ready(&phases, initialization_ns);
                self.log.instance(state.row());
                let initialization = initialization_ns.try_into().unwrap_or_default();
                self.tell(Event::InstanceReady { instance, initialization });
            }
            Message::Failed(failed) => self.start_failed(failed),
            Message::Served(served) => self.served(*served),
            Message::Ended { instance, reason, idle_cpu } => {
                self.ended(instance, reason, idle_cpu);
            }
            Message::Tell(event) => self.tell(event),
            Message::Counts(answer) => drop(answer.send(self.scheduler.counts())),
            Message::Living(function, answer) => {
                let rows = self
                    .instances
                    .values()
                    .filter(|state| state.is_ready())
                    .filter(|state| {
                        function.as_deref().is_none_or(|it| *state.function.name == *it)
                    })
                    .map(InstanceState::row)
                    .collect();
                // Whoever asked may have gone away.
                let _ = answer.send(rows);
            }
            Message::ShutDown(emptied) => {
                self.shutting_down = true;
                self.emptied.push(emptied);
                self.tell(Event::Shutdown);
            }
            Message::Finish(finished) => {
                self.finished.push(finished);
            }
        }
    }

    // Functions.

    fn configure(&mut self, function: Arc<Function>) {
        let id = function.id;
        let settings = function.settings(&self.config);
        self.function_ids.insert(function.name.clone(), id);
        let stale = match self.functions.get_mut(&id) {
            Some(state) => {
                let old = std::mem::replace(&mut state.function, function);
                !old.same_instances(&state.function)
            }
            None => {
                let state = FunctionState { function, pending: 0, deleted: false };
                self.functions.insert(id, state);
                false
            }
        };
        self.tell(Event::FunctionConfigured { function: id, settings });
        if stale {
            self.tell(Event::FunctionUpdated { function: id });
        }
    }

    fn delete(&mut self, function: &Function) {
        if self.function_ids.get(&function.name) == Some(&function.id) {
            self.function_ids.remove(&function.name);
        }
        for event in self.delayed.remove_function(&function.name) {
            self.log.drop_event(event);
        }
        if let Some(state) = self.functions.get_mut(&function.id) {
            state.deleted = true;
        }
        self.tell(Event::FunctionDeleted { function: function.id });
        self.forget_function(function.id);
    }

    /// Drops a deleted function of which no request is left.
    fn forget_function(&mut self, id: FunctionId) {
        if self.functions.get(&id).is_some_and(|state| state.deleted && state.pending == 0) {
            self.functions.remove(&id);
        }
    }

    // Requests.

    fn submit(&mut self, submission: Submission, answer: oneshot::Sender<Answer>) {
        let Submission { function, request_id, invocation, parent, payload, client_context } =
            submission;
        let request = PendingRequest {
            function,
            request_id,
            invocation,
            parent,
            client_context,
            payload_bytes: payload.len(),
            payload: Some(payload),
            attempt: 1,
            accepted: Moment::now(),
            undelivered: 0,
            source: Source::Client(answer),
        };
        self.arrive(request, false);
    }

    /// Has an accepted event wait for its turn.
    fn enqueue(&mut self, event: Box<QueuedEvent>) {
        if self.shutting_down {
            // It is in the log, and the next worker's.
            return;
        }
        let id = self.function_ids.get(&event.function);
        let Some(state) = id.and_then(|id| self.functions.get(id)) else {
            self.log.drop_event(event.id);
            return;
        };
        if state.function.broken.is_some() {
            // Its code may be stored anew.
            let now = self.now();
            self.delayed.insert(now, BROKEN_RETRY_MS, event);
            return;
        }
        let request = PendingRequest::of_event(event, state.function.clone());
        self.arrive(request, true);
    }

    fn arrive(&mut self, request: PendingRequest, can_wait: bool) {
        let function = request.function.id;
        let id = RequestId(self.next_request);
        self.next_request += 1;
        if let Some(state) = self.functions.get_mut(&function) {
            state.pending += 1;
        }
        self.requests.insert(id, request);
        self.tell(Event::Arrival { request: id, function, can_wait });
    }

    fn take_request(&mut self, id: RequestId) -> Option<PendingRequest> {
        let request = self.requests.remove(&id)?;
        if let Some(state) = self.functions.get_mut(&request.function.id) {
            state.pending -= 1;
        }
        self.forget_function(request.function.id);
        Some(request)
    }

    /// Ends a request that did not run.
    fn refuse(&mut self, id: RequestId, refusal: Refusal) {
        let Some(request) = self.take_request(id) else { return };
        let (recorded, result, log_tail) = match refusal {
            Refusal::Rejected(Rejection::ShuttingDown)
                if matches!(request.source, Source::Event(_)) =>
            {
                // It is in the log, and the next worker's.
                return;
            }
            Refusal::Rejected(reason) => {
                (row::rejected(&request, reason), Answered::Rejected(reason), Bytes::new())
            }
            Refusal::NotReady(instance, failed) => {
                let recorded = row::not_ready(&request, &instance, &failed.error);
                let FailedStart { error, log_tail, .. } = *failed;
                (recorded, Answered::NotReady(error), log_tail)
            }
        };
        self.end(request, recorded, result, log_tail);
    }

    /// Writes a request's row to the log; then the client gets its answer, or the event goes on.
    fn end(
        &mut self,
        request: PendingRequest,
        mut recorded: Recorded,
        result: Answered,
        log_tail: Bytes,
    ) {
        match request.source {
            Source::Client(answer) => {
                let row = recorded.row.clone();
                let on_commit = move |committed: Result<(), LogError>| {
                    let result = match committed {
                        Ok(()) => result,
                        Err(error) => Answered::NotLogged(error),
                    };
                    // Whoever asked may have gone away.
                    let _ = answer.send(Answer { result, row, log_tail });
                };
                self.log.invocation(recorded, Box::new(on_commit));
            }
            Source::Event(mut event) => {
                let end = match &result {
                    Answered::Ran(outcome) => AttemptEnd::Ran(outcome),
                    Answered::NotReady(error) => AttemptEnd::NotReady(error),
                    Answered::Rejected(_) | Answered::NotLogged(_) => AttemptEnd::NoFunction,
                };
                let retry_ms = self.config.event_retry_ms;
                let (update, next) = event.attempted(request.attempt, &end, retry_ms);
                recorded.event = Some(update);
                let inbox = self.inbox.clone();
                let on_commit = move |result| {
                    // Without an owner, the next worker goes on with it.
                    let _ = inbox.send(Message::EventRecorded { event, next, result });
                };
                self.log.invocation(recorded, Box::new(on_commit));
            }
        }
    }

    fn event_recorded(
        &mut self,
        mut event: Box<QueuedEvent>,
        next: NextAttempt,
        result: Result<(), LogError>,
    ) {
        let now = self.now();
        match (result, next) {
            (Ok(()), NextAttempt::None) => {}
            (Ok(()), NextAttempt::AfterMs(delay)) => self.delayed.insert(now, delay, event),
            (Err(error), _) => {
                tracing::warn!(
                    request = event.request_id,
                    "an attempt of an event cannot be recorded and will be repeated: {error}"
                );
                let delay = event.defer();
                self.delayed.insert(now, delay, event);
            }
        }
    }

    // Instances.

    fn start(&mut self, id: InstanceId, function: FunctionId) {
        let Some(state) = self.functions.get(&function) else {
            // Deleted, and nothing of it waits.
            self.tell_later(Event::InstanceFailed { instance: id });
            return;
        };
        let function = state.function.clone();
        let (orders, ordered) = mpsc::unbounded_channel();
        let state = InstanceState::new(ids::instance().into(), function, orders);
        let task = InstanceTask {
            id,
            host: self.host.clone(),
            log: self.log.clone(),
            spec: state.function.instance_spec(&state.name, &self.config),
            orders: ordered,
            owner: self.inbox.clone(),
            stop_grace: self.config.stop_grace(),
        };
        self.log.instance(state.row());
        self.instances.insert(id, state);
        tokio::spawn(task.run());
    }

    fn start_failed(&mut self, failed: Box<FailedStart>) {
        let id = failed.instance;
        let Some(mut state) = self.instances.remove(&id) else { return };
        state.ready(&failed.phases, failed.initialization_ns);
        self.log.instance(state.ended_row("init_error", None));
        self.failed_starts.insert(id, (Box::new(state), failed));
        self.tell(Event::InstanceFailed { instance: id });
        // If it is still there, its request was served by another instance.
        self.failed_starts.remove(&id);
    }

    fn served(&mut self, served: Served) {
        let Served { instance: id, request, result, idle_cpu } = served;
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.unassign(request);
        instance.idle_cpu = idle_cpu;
        match result {
            ServeResult::Replied { reply, resume, preempted } => {
                let usage = Usage {
                    duration: reply.ended.since(reply.started).try_into().unwrap_or_default(),
                    ..row::usage(&reply.usage)
                };
                let end = match () {
                    () if preempted => End::Preempted,
                    () if reply.outcome.instance_survives() => End::Survives,
                    () => End::Gone,
                };
                let Some(pending) = self.requests.get_mut(&request) else { return };
                let execution = Execution { instance, reply: &reply, resume, preempted };
                let mut recorded = row::of_reply(pending, &execution);
                recorded.idle = instance.serve(&reply, resume);
                if preempted {
                    let attempt = pending.attempt;
                    pending.attempt += 1;
                    pending.accepted = Moment::now();
                    if let Source::Event(event) = &mut pending.source {
                        event.attempt = attempt;
                        recorded.event = Some(EventUpdate::Attempted { id: event.id, attempt });
                    }
                    // The row of an attempt that is repeated; nobody waits for it.
                    self.log.invocation(recorded, Box::new(|_| {}));
                } else if let Some(pending) = self.take_request(request) {
                    let reply = *reply;
                    self.end(pending, recorded, Answered::Ran(reply.outcome), reply.log_tail);
                }
                self.tell(Event::InvocationEnded { request, instance: id, end, usage });
            }
            ServeResult::Undelivered => self.undelivered(request, id),
            ServeResult::NoPayload(error) => {
                if let Some(pending) = self.take_request(request)
                    && let Source::Event(mut event) = pending.source
                {
                    tracing::warn!(
                        request = event.request_id,
                        "the payload of an event cannot be read, and is tried again: {error}"
                    );
                    let delay = event.defer();
                    self.delayed.insert(self.now(), delay, event);
                }
                let (end, usage) = (End::Survives, Usage::default());
                self.tell(Event::InvocationEnded { request, instance: id, end, usage });
            }
        }
    }

    /// The instance was gone before it was given the request: another may try.
    fn undelivered(&mut self, request: RequestId, id: InstanceId) {
        let Some(pending) = self.requests.get_mut(&request) else { return };
        if pending.may_be_assigned_again() {
            self.tell(Event::Undelivered { request, instance: id });
            return;
        }
        let Some(instance) = self.instances.get(&id) else { return };
        let how = "it ended each time before it was given the request".to_owned();
        let recorded = row::never_delivered(pending, instance, &how);
        if let Some(pending) = self.take_request(request) {
            self.end(pending, recorded, Answered::Ran(Outcome::Exited(how)), Bytes::new());
        }
        let usage = Usage::default();
        self.tell(Event::InvocationEnded { request, instance: id, end: End::Gone, usage });
    }

    fn ended(&mut self, id: InstanceId, reason: &'static str, idle_cpu: Option<i64>) {
        let Some(state) = self.instances.get_mut(&id) else { return };
        if !state.is_ready() {
            let began = state.began;
            self.start_failed(Box::new(FailedStart {
                instance: id,
                error: lost_start(),
                phases: Vec::new(),
                initialization_ns: Moment::now().since(began),
                log_tail: Bytes::new(),
            }));
            return;
        }
        // What it was assigned meanwhile it was not given: its task reports each request before its
        // own end.
        for request in std::mem::take(&mut state.assigned) {
            self.undelivered(request, id);
        }
        let Some(mut state) = self.instances.remove(&id) else { return };
        self.log.instance(state.ended_row(reason, idle_cpu));
        self.tell(Event::InstanceGone { instance: id });
    }

    // Decisions.

    /// Tells the scheduler what happened, and does what it decides.
    fn tell(&mut self, event: Event) {
        let mut decisions = std::mem::take(&mut self.decisions);
        self.scheduler.on_event(self.now(), &event, &mut decisions);
        for decision in decisions.drain(..) {
            self.carry_out(decision);
        }
        self.decisions = decisions;
    }

    /// Tells the scheduler after the decisions at hand are carried out.
    fn tell_later(&mut self, event: Event) {
        // The receiver lives as long as this.
        let _ = self.inbox.send(Message::Tell(event));
    }

    fn carry_out(&mut self, decision: Decision) {
        match decision {
            Decision::Start { instance, function, worker: _ } => self.start(instance, function),
            // How it is paused, its own task knows best.
            Decision::Assign { request, instance, resume: _ } => self.assign(request, instance),
            Decision::Reject { request, reason } => {
                let refusal = match reason {
                    Rejection::StartFailed(instance) => self
                        .failed_starts
                        .remove(&instance)
                        .map(|(state, failed)| Refusal::NotReady(state, failed)),
                    _ => None,
                };
                self.refuse(request, refusal.unwrap_or(Refusal::Rejected(reason)));
            }
            Decision::Pause { instance, how } => self.order(instance, Order::Pause(how)),
            Decision::Stop { instance, reason } => self.order(instance, Order::Stop(reason)),
            Decision::Preempt { instance } => self.order(instance, Order::Preempt),
            Decision::SetCpu { instance, assignment } => {
                self.order(instance, Order::SetCpu(assignment));
            }
            Decision::WakeAt(at) => self.wake_at = Some(at),
        }
    }

    fn assign(&mut self, request: RequestId, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(pending) = self.requests.get(&request) else { return };
        instance.assigned.push(request);
        let work = pending.work(request);
        self.order(id, Order::Serve(Box::new(work)));
    }

    fn order(&self, id: InstanceId, order: Order) {
        if let Some(instance) = self.instances.get(&id) {
            // If its task has ended, its last message is on its way, and what it was assigned is
            // known here.
            let _ = instance.orders.send(order);
        }
    }

    /// Answers what is left: there is no instance any more, and there will be none.
    fn finish(&mut self) {
        let mut left: Vec<RequestId> = self.requests.keys().copied().collect();
        left.sort_unstable();
        for request in left {
            self.refuse(request, Refusal::Rejected(Rejection::ShuttingDown));
        }
        for finished in self.finished.drain(..) {
            // Whoever waited may have given up.
            let _ = finished.send(());
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
