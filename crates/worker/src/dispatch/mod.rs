//! From a request's arrival to its row in the log.
//!
//! One task, the [`owner`], owns the scheduler of `uncia-policy` and the state of all requests and
//! instances. A request reaches it as a message ([`Dispatcher::submit`]); the scheduler decides which
//! instance serves it; that instance's task ([`instance_task`]) carries the order out on whatever
//! lies below the seam ([`host`]) and reports back; the request's row ([`row`]) goes to the log, and
//! once it is there, the answer to whoever asked.
//!
//! | module | concern |
//! |---|---|
//! | [`owner`] | the state, and what follows from each message |
//! | [`message`] | what the owner and the instances' tasks say to each other |
//! | [`requests`], [`instances`], [`events`] | the parts of the state |
//! | [`hints`] | what requests say of those to come |
//! | [`relief`] | what making room in memory took |
//! | [`instance_task`] | following one instance from its start to its end |
//! | [`host`] | the seam: sandboxes, or in tests something that only behaves like them |
//! | [`row`] | the log's row of a request |

mod events;
mod hints;
mod host;
mod instance_task;
mod instances;
mod message;
mod owner;
mod relief;
mod requests;
mod row;
mod sandboxes;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use uncia_clock::Moment;
use uncia_policy::{
    Capacity, Counts, Event, FunctionId, Policies, Rejection, Resources, Scheduler, WorkerId,
};
use uncia_record::{Instance as InstanceRow, Invocation};

pub(crate) use hints::{GivenHint, HintCounts};
pub(crate) use host::{InstanceHost, Log, RunningInstance, Started};

use crate::awake::StayAwake;
use crate::config::Config;
use crate::function::Function;
use crate::instance::{HttpHead, InUse, Outcome, Passage, StartError};
use crate::meterlog::{AcceptedEvent, LogError, Recorded, WaitingEvent};
use events::{INLINE_BYTES, QueuedEvent};
use message::Message;
pub(crate) use message::{Overview, Readiness};
use owner::Owner;
pub(crate) use relief::Relief;
pub(crate) use sandboxes::{Hosts, Running};

/// Beyond so many functions, those of which no event waits are forgotten.
const MAX_SLOT_ENTRIES: usize = 1_000;

/// A request whose answer is waited for.
pub(crate) struct Submission {
    pub function: Arc<Function>,
    pub request_id: String,
    /// The name under which it is logged.
    pub invocation: String,
    /// The request that caused this one.
    pub parent: Option<String>,
    /// The stage of a chain that it is.
    pub stage: Option<String>,
    pub payload: Bytes,
    /// The head of an HTTP request, if it is for a server.
    pub head: Option<Arc<HttpHead>>,
    /// By which a body or an answer may pass piece by piece.
    pub passage: Option<Arc<Passage>>,
    pub client_context: Option<String>,
    /// The ARN that it was invoked by, where that is not the version's own.
    pub invoked_arn: Option<String>,
    /// What it says of those to come.
    pub hint: Option<GivenHint>,
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Disposition {
    /// An instance was given it.
    Ran(Outcome),
    /// Its instance did not become ready.
    NotReady(StartError),
    Rejected(Rejection),
    /// The answer is not in the log, so it must not be given.
    NotLogged(LogError),
}

/// What became of a request, with its row of the log.
#[derive(Debug)]
pub(crate) struct Completion {
    pub disposition: Disposition,
    pub recorded: Arc<Recorded>,
    pub log_tail: Bytes,
}

impl Completion {
    pub(crate) fn row(&self) -> &Invocation {
        &self.recorded.row
    }
}

/// The platform has stopped.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the platform has stopped")]
pub(crate) struct Stopped;

/// As many events wait as may.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("as many events wait as the platform takes")]
pub(crate) struct QueueFull;

/// Reaches the owner; clones reach the same.
#[derive(Clone)]
pub(crate) struct Dispatcher {
    owner: mpsc::UnboundedSender<Message>,
    /// As many events may wait as it has permits.
    event_slots: Arc<Semaphore>,
    /// The same for each function of which some wait.
    function_slots: Arc<Mutex<HashMap<Arc<str>, Arc<Semaphore>>>>,
    max_events: usize,
    max_per_function: usize,
    awake: Arc<StayAwake>,
    reads_samples: bool,
    reads_connections: bool,
    relief: Arc<Relief>,
    hints: Arc<HintCounts>,
}

/// A place among the events that wait, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct EventSlot {
    _of_all: OwnedSemaphorePermit,
    _of_function: OwnedSemaphorePermit,
}

/// A connection that has asked for nothing yet.
pub(crate) struct Connecting {
    dispatcher: Dispatcher,
    function: FunctionId,
}

impl Drop for Connecting {
    fn drop(&mut self) {
        let settled = Event::ConnectionSettled { function: self.function };
        self.dispatcher.send(Message::NotifyScheduler(settled));
    }
}

impl Dispatcher {
    /// Starts the owner. `resources` are what there is for instances; without any it runs nothing itself.
    pub(crate) fn start<H: InstanceHost, L: Log>(
        config: Arc<Config>,
        host: H,
        log: Arc<L>,
        policies: Policies,
        resources: Option<Resources>,
    ) -> Self {
        let (owner, messages) = mpsc::unbounded_channel();
        let max_events = config.event_queue.min(Semaphore::MAX_PERMITS);
        let event_slots = Arc::new(Semaphore::new(max_events));
        // One function that may not run must not keep the others' events out.
        let max_per_function = (max_events * 9).div_ceil(10);
        let awake = StayAwake::start(config.stay_awake());
        let capacity = |resources| Capacity { resources, max_instances: config.max_instances };
        let capacity = resources.map(capacity);
        let joined = capacity.map(|capacity| Event::WorkerJoined { worker: WorkerId(0), capacity });
        let scheduler = Scheduler::with_parameters(policies, config.parameters, config.seed);
        let reads_samples = scheduler.reads_samples();
        let reads_connections = scheduler.reads_connections();
        let relief = Arc::new(Relief::default());
        let hints = Arc::new(HintCounts::default());
        let counts = (relief.clone(), hints.clone());
        let state = Owner::new(config, host, log, scheduler, owner.clone(), counts);
        tokio::spawn(state.run(joined, messages));
        Self {
            owner,
            event_slots,
            function_slots: Arc::default(),
            max_events,
            max_per_function,
            awake,
            reads_samples,
            reads_connections,
            relief,
            hints,
        }
    }

    /// Makes a function, or its new settings, known. Instances that cannot serve it any more retire.
    pub(crate) fn configure(&self, function: &Arc<Function>) {
        self.send(Message::Configure(function.clone()));
    }

    /// The function is gone.
    pub(crate) fn delete(&self, function: &Arc<Function>) {
        self.send(Message::Delete(function.clone()));
    }

    /// Serves a request to its end, whether or not anybody waits for the answer.
    pub(crate) async fn submit(&self, submission: Submission) -> Result<Completion, Stopped> {
        let (answer, answered) = oneshot::channel();
        self.send(Message::Submit(Box::new(submission), answer));
        let completion = answered.await.map_err(|_| Stopped);
        self.awake.note_answer();
        completion
    }

    /// A worker takes instances from now on.
    pub(crate) fn worker_joined(&self, worker: WorkerId, capacity: Capacity) {
        self.send(Message::WorkerJoined { worker, capacity });
    }

    /// Ends what a worker has when it serves nothing any more, gives it nothing new, and returns when it has
    /// nothing left.
    pub(crate) async fn worker_leaves(&self, worker: WorkerId) {
        let (waiter, left) = oneshot::channel();
        self.send(Message::WorkerLeaves(worker, waiter));
        // After the end of the owner it has nothing.
        let _ = left.await;
    }

    /// Reserves a place for an event of a function that is about to be written to the log. A function
    /// has at most nine tenths of the places.
    pub(crate) fn reserve_event(&self, function: &Arc<str>) -> Result<EventSlot, QueueFull> {
        let of_function = {
            // The map is whole after every statement, so a panic elsewhere does not spoil it.
            let mut slots = self.function_slots.lock().unwrap_or_else(PoisonError::into_inner);
            if slots.len() > MAX_SLOT_ENTRIES {
                slots.retain(|_, slots| slots.available_permits() < self.max_per_function);
            }
            let slots = slots
                .entry(function.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(self.max_per_function)));
            slots.clone().try_acquire_owned()
        };
        let of_all = self.event_slots.clone().try_acquire_owned();
        match (of_all, of_function) {
            (Ok(of_all), Ok(of_function)) => {
                Ok(EventSlot { _of_all: of_all, _of_function: of_function })
            }
            _ => Err(QueueFull),
        }
    }

    /// Runs an event that is in the log, as soon as there is room.
    pub(crate) fn run_event(&self, event: AcceptedEvent, slot: EventSlot) {
        let payload_bytes = event.payload.len();
        self.send(Message::Accept(Box::new(QueuedEvent {
            id: event.id,
            function: Arc::from(event.function),
            function_key: Arc::from(event.function_key),
            request_id: Arc::from(event.request_id),
            invocation: Arc::from(event.invocation),
            parent: event.parent.map(Arc::from),
            stage: event.stage.map(Arc::from),
            accepted: Some(Moment::now()),
            stuck_ms: 0,
            attempt: event.attempt,
            failures: event.failures,
            payload_bytes,
            // A copy: what came in is a part of a larger buffer.
            payload: (payload_bytes <= INLINE_BYTES)
                .then(|| Bytes::copy_from_slice(&event.payload)),
            client_context: event.client_context.map(Arc::from),
            deferrals: 0,
            _slot: Some(slot),
        })));
    }

    /// Goes on with the events that an earlier worker had accepted.
    pub(crate) fn resume_events(&self, events: Vec<WaitingEvent>) {
        let now = Moment::now();
        for event in events {
            let function = Arc::from(event.function);
            // More may be left than this worker takes.
            let slot = self.reserve_event(&function).ok();
            // By the real-time clock, the only one that an earlier worker shares with this.
            let waited = now.unix().saturating_sub(event.accepted).max(0);
            self.send(Message::Accept(Box::new(QueuedEvent {
                id: event.id,
                function,
                function_key: Arc::from(event.function_key),
                request_id: Arc::from(event.request_id),
                invocation: Arc::from(event.invocation),
                parent: event.parent.map(Arc::from),
                stage: event.stage.map(Arc::from),
                accepted: (event.attempt == 0).then(|| now.plus(-waited)),
                stuck_ms: 0,
                attempt: event.attempt,
                failures: event.failures,
                payload_bytes: usize::try_from(event.payload.0).unwrap_or_default(),
                payload: None,
                client_context: event.client_context.map(Arc::from),
                deferrals: 0,
                _slot: slot,
            })));
        }
    }

    /// Whether the policies want to know of connections before they have asked.
    pub(crate) fn reads_connections(&self) -> bool {
        self.reads_connections
    }

    /// A client has connected to a function's own address, and has asked for nothing until what is returned
    /// is dropped.
    pub(crate) fn connecting(&self, function: FunctionId) -> Connecting {
        self.send(Message::NotifyScheduler(Event::ConnectionBegan { function }));
        Connecting { dispatcher: self.clone(), function }
    }

    /// Whether the policies decide by what instances use.
    pub(crate) fn reads_samples(&self) -> bool {
        self.reads_samples
    }

    /// What instances on this machine use now.
    pub(crate) fn note_use(&self, in_use: InUse) {
        self.send(Message::InUse(Box::new(in_use)));
    }

    /// An accepted event of the function says what comes.
    pub(crate) fn hint(&self, function: FunctionId, hint: GivenHint) {
        self.send(Message::Hint(function, hint));
    }

    /// How many hints there were.
    pub(crate) fn hints(&self) -> &HintCounts {
        &self.hints
    }

    /// Who was stopped because memory ran short.
    pub(crate) fn relief(&self) -> &Relief {
        &self.relief
    }

    /// How many instances do what.
    pub(crate) async fn counts(&self) -> Counts {
        let (answer, counts) = oneshot::channel();
        self.send(Message::Counts(answer));
        counts.await.unwrap_or_default()
    }

    /// What all instances and requests do.
    pub(crate) async fn overview(&self) -> Overview {
        let (answer, overview) = oneshot::channel();
        self.send(Message::Overview(answer));
        overview.await.unwrap_or_default()
    }

    /// Asynchronous invocations that are accepted and not done.
    pub(crate) fn events_waiting(&self) -> usize {
        self.max_events - self.event_slots.available_permits()
    }

    /// How many instances of a function, or of one of its versions, are ready.
    pub(crate) async fn readiness(&self, function: FunctionId) -> Readiness {
        let (answer, readiness) = oneshot::channel();
        self.send(Message::Readiness(function, answer));
        readiness.await.unwrap_or_default()
    }

    /// The rows of the instances that live, of those that start, too.
    pub(crate) async fn living(&self, function: Option<&str>) -> Vec<InstanceRow> {
        let (answer, rows) = oneshot::channel();
        self.send(Message::Living(function.map(str::to_owned), answer));
        rows.await.unwrap_or_default()
    }

    /// Lets nothing in any more, waits up to `grace` for what runs, and stops the instances.
    pub(crate) async fn shut_down(&self, grace: Duration) {
        let (waiter, done) = oneshot::channel();
        self.send(Message::ShutDown(waiter));
        // What has not ended by then is killed when the host closes.
        let _ = tokio::time::timeout(grace, done).await;
    }

    /// From now on instances are killed: what they served is not held against their functions.
    pub(crate) fn close(&self) {
        self.send(Message::Close);
    }

    /// Ends once the host has closed: every request has an answer when this returns.
    pub(crate) async fn finish(&self) {
        let (waiter, done) = oneshot::channel();
        self.send(Message::Finish(waiter));
        let _ = done.await;
    }

    /// Resolves when the owner has ended, as told or not.
    pub(crate) async fn ended(&self) {
        self.owner.closed().await;
    }

    /// What keeps CPUs awake for requests.
    pub(crate) fn awake(&self) -> &StayAwake {
        &self.awake
    }

    /// After the end of the owner, whoever waits for an answer learns it from that.
    fn send(&self, message: Message) {
        let _ = self.owner.send(message);
    }
}
