//! Carries what happens to the policies, and what they decide to the host.
//!
//! A request enters by [`Dispatcher::submit`]; the scheduler says which instance serves it. Every
//! instance has a task of its own ([`live`]) that does what is decided about it, in that order.
//! A request is answered after its row is in the log.

mod live;
mod row;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc, oneshot};
use uncia_policy::{
    Counts, Decision, Event, FunctionId, InstanceId, LateBinding, Nanos, Policies, Rejection,
    RequestId, Scheduler,
};
use uncia_record::{Instance as InstanceRow, Invocation, Span};

use crate::clock;
use crate::config::{BindingName, Config};
use crate::function::Function;
use crate::instance::{Host, Outcome, StartError};
use crate::meterlog::{LogError, MeterLog};

use live::Order;

/// A request that is to be served.
pub struct Submission {
    pub function: Arc<Function>,
    pub request_id: String,
    /// The name under which it is logged.
    pub invocation: String,
    /// 1 for the first attempt.
    pub attempt: i64,
    /// The request that caused this one.
    pub parent: Option<String>,
    pub payload: Bytes,
    pub client_context: Option<String>,
    /// The accepted event that this is an attempt of.
    pub event: Option<EventAttempt>,
}

/// An attempt to run an accepted event.
#[derive(Clone, Copy)]
pub struct EventAttempt {
    pub id: i64,
    /// Attempts before this one that ran and failed.
    pub failures: i64,
    /// Whether no other follows if this one runs and fails.
    pub last: bool,
}

/// What became of a request.
pub enum Answered {
    /// It ran, or its instance failed to start by the function's own fault.
    Ran(Outcome),
    /// Its instance did not become ready.
    NotReady(StartError),
    Rejected(Rejection),
    /// The answer is not in the log, so it must not be given.
    NotLogged(LogError),
}

/// The answer to a request, with its row of the log.
pub struct Answer {
    pub result: Answered,
    pub row: Invocation,
    pub log_tail: Bytes,
}

/// A request between its arrival and its answer.
struct Pending {
    submission: Submission,
    /// Unix ns.
    accepted: i64,
    answer: oneshot::Sender<Answer>,
}

/// The start of an instance that failed.
struct Failure {
    error: StartError,
    log_tail: Bytes,
    birth: Birth,
}

/// What is known of an instance's start.
#[derive(Clone)]
struct Birth {
    name: Arc<str>,
    function: Arc<Function>,
    began: i64,
    ready: i64,
    initialization: i64,
    spans: Vec<Span>,
}

struct Books {
    scheduler: Scheduler,
    functions: HashMap<FunctionId, Arc<Function>>,
    pending: HashMap<RequestId, Pending>,
    live: HashMap<InstanceId, mpsc::UnboundedSender<Order>>,
    failures: HashMap<InstanceId, Failure>,
    /// What the log will say of the instances that live.
    rows: HashMap<InstanceId, InstanceRow>,
    next_request: u64,
    wake_at: Option<Nanos>,
}

/// Shared by all who submit requests.
pub struct Dispatcher {
    config: Config,
    host: Arc<Host>,
    log: Arc<MeterLog>,
    origin: Instant,
    books: Mutex<Books>,
    alarm: Notify,
    idle: Notify,
}

impl Dispatcher {
    /// Takes over the host; the policies are Lambda's as far as they are known, or as configured.
    pub fn new(config: Config, host: Arc<Host>, log: Arc<MeterLog>) -> Arc<Self> {
        let mut policies = Policies::default();
        if config.binding == BindingName::Late {
            policies.binding = Box::new(LateBinding);
        }
        let scheduler = Scheduler::new(policies, config.max_instances);
        let books = Books {
            scheduler,
            functions: HashMap::new(),
            pending: HashMap::new(),
            live: HashMap::new(),
            failures: HashMap::new(),
            rows: HashMap::new(),
            next_request: 1,
            wake_at: None,
        };
        let dispatcher = Arc::new(Self {
            config,
            host,
            log,
            origin: Instant::now(),
            books: Mutex::new(books),
            alarm: Notify::new(),
            idle: Notify::new(),
        });
        tokio::spawn(ring(dispatcher.clone()));
        dispatcher
    }

    /// Makes a function, or its new settings, known. Instances that can't serve it any more retire.
    pub fn configure(self: &Arc<Self>, function: &Arc<Function>) {
        let settings = function.settings(&self.config);
        let stale = {
            let mut books = self.books();
            let old = books.functions.insert(function.id, function.clone());
            old.is_some_and(|old| !old.same_instances(function))
        };
        self.happened(Event::FunctionConfigured { function: function.id, settings });
        if stale {
            self.happened(Event::FunctionUpdated { function: function.id });
        }
    }

    /// The function is gone.
    pub fn delete(self: &Arc<Self>, function: &Function) {
        self.happened(Event::FunctionDeleted { function: function.id });
        self.books().functions.remove(&function.id);
    }

    /// Serves a request to its end, whether or not anybody waits for the answer.
    pub async fn submit(self: &Arc<Self>, submission: Submission) -> Answer {
        let (answer, answered) = oneshot::channel();
        let function = submission.function.id;
        let request = {
            let mut books = self.books();
            let request = RequestId(books.next_request);
            books.next_request += 1;
            let pending = Pending { submission, accepted: clock::unix_ns(), answer };
            books.pending.insert(request, pending);
            request
        };
        self.happened(Event::Arrival { request, function });
        answered.await.expect("every request is answered")
    }

    /// How many instances do what.
    pub fn counts(&self) -> Counts {
        self.books().scheduler.counts()
    }

    /// The rows of the instances that live.
    pub fn living(&self, function: Option<&str>) -> Vec<InstanceRow> {
        let books = self.books();
        let mut rows: Vec<InstanceRow> = books
            .rows
            .values()
            .filter(|row| function.is_none_or(|name| &*row.function == name))
            .cloned()
            .collect();
        rows.sort_by_key(|row| row.started);
        rows
    }

    /// Lets nothing in any more, waits up to `grace` for what runs, and stops the instances.
    pub async fn shut_down(self: &Arc<Self>, grace: Duration) {
        self.happened(Event::Shutdown);
        let emptied = async {
            loop {
                let idle = self.idle.notified();
                if self.books().scheduler.instances() == 0 {
                    break;
                }
                idle.await;
            }
        };
        // What has not ended by then is killed when the host closes.
        let _ = tokio::time::timeout(grace, emptied).await;
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Nanos {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Tells the scheduler, and does what it says.
    fn happened(self: &Arc<Self>, event: Event) {
        let mut decisions = Vec::new();
        let mut books = self.books();
        books.scheduler.on_event(self.now(), &event, &mut decisions);
        for decision in decisions {
            self.carry_out(&mut books, decision);
        }
        if books.scheduler.instances() == 0 {
            self.idle.notify_waiters();
        }
    }

    fn carry_out(self: &Arc<Self>, books: &mut Books, decision: Decision) {
        match decision {
            Decision::Start { instance, function } => {
                if let Some(function) = books.functions.get(&function).cloned() {
                    tokio::spawn(self.clone().start(instance, function));
                } else {
                    // Deleted since its request came in.
                    tokio::spawn(self.clone().report(Event::InstanceFailed { instance }));
                }
            }
            // How it is paused, its own task knows best.
            Decision::Assign { request, instance, resume: _ } => {
                self.order(books, instance, Order::Serve { request });
            }
            Decision::Reject { request, reason } => {
                if let Some(pending) = books.pending.remove(&request) {
                    let failure = match reason {
                        Rejection::StartFailed(instance) => books.failures.remove(&instance),
                        _ => None,
                    };
                    tokio::spawn(self.clone().turn_away(pending, reason, failure));
                }
            }
            Decision::Pause { instance, how } => self.order(books, instance, Order::Pause(how)),
            Decision::Stop { instance, reason } => {
                self.order(books, instance, Order::Stop(reason));
            }
            Decision::WakeAt(at) => {
                books.wake_at = Some(at);
                self.alarm.notify_one();
            }
        }
    }

    fn order(self: &Arc<Self>, books: &Books, instance: InstanceId, order: Order) {
        if let Some(live) = books.live.get(&instance) {
            // If its task has ended, that is being reported, with what it was ordered to do.
            let _ = live.send(order);
        }
    }

    async fn report(self: Arc<Self>, event: Event) {
        self.happened(event);
    }
}

/// Wakes the scheduler when it asked to be woken.
async fn ring(dispatcher: Arc<Dispatcher>) {
    loop {
        let wake_at = dispatcher.books().wake_at;
        let now = dispatcher.now();
        match wake_at {
            Some(at) if at <= now => {
                dispatcher.books().wake_at = None;
                dispatcher.happened(Event::Wake);
            }
            Some(at) => {
                let nap = tokio::time::sleep(Duration::from_nanos(at - now));
                tokio::select! {
                    () = nap => {}
                    () = dispatcher.alarm.notified() => {}
                }
            }
            None => dispatcher.alarm.notified().await,
        }
    }
}
