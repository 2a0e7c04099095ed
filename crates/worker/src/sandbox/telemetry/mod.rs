//! The Telemetry API: what happens in an instance, sent to those of its extensions that subscribe.
//!
//! Nothing is made or kept unless an instance has extensions, and after its start only what somebody has
//! subscribed to. What waits is bounded, and what a listener does not take in time is dropped and counted.
//!
//! | module | concern |
//! |---|---|
//! | [`subscription`] | what an extension asks for, and its limits |
//! | [`event`] | the forms of events |
//! | [`lines`] | output cut into lines |
//! | [`queue`] | what waits for a subscriber |
//! | [`delivery`] | sending it |

mod delivery;
mod event;
mod lines;
mod queue;
mod subscription;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::live::Inner;
use crate::clock::Moment;
use crate::instance::{Architecture, InstanceSpec, Usage};
use lines::Lines;
use queue::{Mode, Queue};
use subscription::Subscription;

/// The path of a subscription.
pub(super) const PATH: &str = "/2022-07-01/telemetry";

/// Of what happens before the first subscription, this much is kept for it.
const MAX_EARLY_EVENTS: usize = 1_000;
const MAX_EARLY_BYTES: usize = 256 * 1024;

const BYTES_PER_MIB: i64 = 1024 * 1024;
const NS_PER_MS: i64 = 1_000_000;
/// Between two looks whether all was sent, at an end.
const LOOK: Duration = Duration::from_millis(2);

/// The types of events that there are to subscribe to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Platform,
    Function,
    Extension,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Platform, Self::Function, Self::Extension];

    fn name(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Function => "function",
            Self::Extension => "extension",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How the runtime did with an invocation, or with the initialization, as events say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Status {
    pub word: &'static str,
    pub error_type: Option<String>,
}

impl Status {
    pub(super) const SUCCESS: Self = Self { word: "success", error_type: None };
    pub(super) const TIMEOUT: Self = Self { word: "timeout", error_type: None };

    pub(super) fn error(kind: impl Into<String>) -> Self {
        Self { word: "error", error_type: Some(kind.into()) }
    }

    pub(super) fn failure(kind: &str) -> Self {
        Self { word: "failure", error_type: Some(kind.to_owned()) }
    }

    fn describe(&self, record: &mut Value) {
        record["status"] = self.word.into();
        if let Some(kind) = &self.error_type {
            record["errorType"] = kind.as_str().into();
        }
    }
}

/// Ten extensions may be in an instance; what was asked for before may be on its way for a moment still.
const MAX_SUBSCRIPTIONS: usize = 20;

/// The telemetry of one instance.
pub(super) struct Telemetry {
    function: String,
    version: String,
    instance: String,
    runtime: &'static str,
    memory_mib: u64,
    /// Whether anybody may want to know.
    is_active: AtomicBool,
    state: Mutex<State>,
    /// The instance, once there is one.
    inner: OnceLock<Weak<Inner>>,
}

#[derive(Default)]
struct State {
    /// When the start began.
    began: Option<Moment>,
    /// How long it took, in ns, until the first report has said so.
    initialization_ns: Option<i64>,
    is_runtime_initialized: bool,
    /// What has happened so far, until none can subscribe any more.
    early: Vec<(Kind, Bytes)>,
    early_bytes: usize,
    queues: Vec<Arc<Queue>>,
    /// So far, those that took the place of others included.
    subscriptions: usize,
    is_closed: bool,
    serving: Option<Serving>,
    /// The most memory of all invocations, in bytes.
    peak: Option<i64>,
    function_lines: Lines,
    extension_lines: Lines,
}

/// The invocation that has not been reported yet.
struct Serving {
    request_id: String,
    trace: String,
    started: Moment,
    is_runtime_done: bool,
}

impl Telemetry {
    pub(super) fn new(spec: &InstanceSpec) -> Arc<Self> {
        let name = spec.function.split_once(':').map_or(&*spec.function, |(name, _)| name);
        Arc::new(Self {
            function: name.to_owned(),
            version: spec.version.clone(),
            instance: spec.id.clone(),
            runtime: spec.runtime.name(),
            memory_mib: spec.memory_bytes / BYTES_PER_MIB.unsigned_abs(),
            is_active: AtomicBool::new(expects_extensions(spec)),
            state: Mutex::default(),
            inner: OnceLock::new(),
        })
    }

    /// The start began at this moment.
    pub(super) fn begin(&self, began: Moment) {
        self.lock().began = Some(began);
        if self.is_active() {
            self.init_start(began);
        }
    }

    pub(super) fn attach(&self, inner: &Arc<Inner>) {
        let _ = self.inner.set(Arc::downgrade(inner));
    }

    /// An extension has registered: it may subscribe.
    pub(super) fn activate(&self) {
        let began = {
            let state = self.lock();
            if state.is_closed { None } else { state.began }
        };
        if let Some(began) = began
            && !self.is_active.swap(true, Ordering::SeqCst)
        {
            self.init_start(began);
        }
    }

    /// Whether anybody may want to know what happens.
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Has an extension's listener be sent what it asks for; or says in a sentence why not.
    pub(super) fn subscribe(&self, name: &str, body: &[u8]) -> Result<(), Refusal> {
        let subscription = Subscription::read(body).map_err(Refusal::Invalid)?;
        let types: Vec<_> = subscription.kinds.iter().map(|kind| kind.name()).collect();
        let queue = Arc::new(Queue::new(name.to_owned(), subscription));
        {
            let mut state = self.lock();
            let inner = self.inner.get().and_then(Weak::upgrade);
            let Some(inner) = inner.filter(|_| !state.is_closed) else {
                return Err(Refusal::Closed);
            };
            state.subscriptions += 1;
            if state.subscriptions > MAX_SUBSCRIPTIONS {
                let sentence = format!("an instance may subscribe {MAX_SUBSCRIPTIONS} times");
                return Err(Refusal::Invalid(sentence));
            }
            state.queues.retain(|other| {
                let is_other = other.name != name;
                if !is_other {
                    // The newer one counts.
                    other.set_mode(Mode::Over);
                }
                is_other
            });
            for (kind, event) in &state.early {
                if queue.subscription.kinds.contains(kind) {
                    queue.push(event);
                }
            }
            state.queues.push(queue.clone());
            inner.serve(delivery::deliver(queue, self.inner.get().cloned().unwrap_or_default()));
        }
        let record = json!({"name": name, "state": "Subscribed", "types": types});
        self.platform(Moment::now(), "telemetrySubscription", &record);
        Ok(())
    }

    /// None can subscribe any more.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.early = Vec::new();
        if state.queues.is_empty() {
            self.is_active.store(false, Ordering::SeqCst);
        }
    }

    fn init_start(&self, began: Moment) {
        let record = json!({
            "initializationType": "on-demand",
            "phase": "init",
            "runtimeVersion": self.runtime,
            "functionName": self.function,
            "functionVersion": self.version,
            "instanceId": self.instance,
            "instanceMaxMemory": self.memory_mib * BYTES_PER_MIB.unsigned_abs(),
        });
        self.platform(began, "initStart", &record);
    }

    /// The runtime has asked for its first event, or will not.
    pub(super) fn runtime_initialized(&self, at: Moment, status: &Status) {
        if !self.is_active() || std::mem::replace(&mut self.lock().is_runtime_initialized, true) {
            return;
        }
        let mut record = json!({"initializationType": "on-demand", "phase": "init"});
        status.describe(&mut record);
        self.platform(at, "initRuntimeDone", &record);
    }

    /// The start is over, and has taken this long.
    pub(super) fn initialized(&self, at: Moment, initialization_ns: i64) {
        if !self.is_active() {
            return;
        }
        self.lock().initialization_ns = Some(initialization_ns);
        let record = json!({
            "initializationType": "on-demand",
            "phase": "init",
            "metrics": {"durationMs": event::milliseconds(initialization_ns)},
        });
        self.platform(at, "initReport", &record);
    }

    pub(super) fn extension_ready(&self, name: &str, events: &[&str]) {
        if self.is_active() {
            let record = json!({"name": name, "state": "Ready", "events": events});
            self.platform(Moment::now(), "extension", &record);
        }
    }

    /// The runtime has been given an event.
    pub(super) fn started(&self, request_id: &str, trace: String, started: Moment) {
        if !self.is_active() {
            return;
        }
        let tracing = event::tracing(&trace);
        let record = json!({"requestId": request_id, "version": self.version, "tracing": tracing});
        let request_id = request_id.to_owned();
        self.lock().serving = Some(Serving { request_id, trace, started, is_runtime_done: false });
        self.platform(started, "start", &record);
    }

    /// The runtime has answered, the answer having begun at `answering`, or will not.
    pub(super) fn runtime_done(
        &self,
        at: Moment,
        status: &Status,
        answering: Option<Moment>,
        bytes: Option<u64>,
    ) {
        if !self.is_active() {
            return;
        }
        self.end_lines();
        let record = {
            let mut state = self.lock();
            let Some(serving) = state.serving.as_mut().filter(|it| !it.is_runtime_done) else {
                return;
            };
            serving.is_runtime_done = true;
            let duration = event::milliseconds(at.since(serving.started).max(0));
            let mut record = json!({
                "requestId": serving.request_id,
                "tracing": event::tracing(&serving.trace),
                "metrics": {"durationMs": duration},
            });
            if let Some(bytes) = bytes {
                record["metrics"]["producedBytes"] = bytes.into();
            }
            if let Some(answering) = answering {
                let latency = event::span("responseLatency", serving.started, answering);
                let duration = event::span("responseDuration", answering, at);
                record["spans"] = json!([latency, duration]);
            }
            status.describe(&mut record);
            record
        };
        self.platform(at, "runtimeDone", &record);
    }

    /// The invocation is over.
    pub(super) fn report(&self, ended: Moment, status: &Status, usage: &Usage) {
        if !self.is_active() {
            return;
        }
        self.end_lines();
        let record = {
            let mut state = self.lock();
            let Some(serving) = state.serving.take() else { return };
            state.peak = state.peak.max(usage.memory_peak);
            let initialization = state.initialization_ns.take();
            let execution = ended.since(serving.started).max(0);
            let billed = execution + initialization.unwrap_or(0);
            let mut metrics = json!({
                "durationMs": event::milliseconds(execution),
                "billedDurationMs": (billed + NS_PER_MS - 1) / NS_PER_MS,
                "memorySizeMB": self.memory_mib,
            });
            if let Some(peak) = state.peak {
                metrics["maxMemoryUsedMB"] = ((peak + BYTES_PER_MIB - 1) / BYTES_PER_MIB).into();
            }
            if let Some(ns) = initialization {
                metrics["initDurationMs"] = event::milliseconds(ns).into();
            }
            let mut record = json!({
                "requestId": serving.request_id,
                "tracing": event::tracing(&serving.trace),
                "metrics": metrics,
            });
            status.describe(&mut record);
            record
        };
        self.platform(ended, "report", &record);
    }

    /// Takes what was printed.
    pub(super) fn printed(&self, kind: Kind, output: &[u8]) {
        if !self.is_active() {
            return;
        }
        let mut state = self.lock();
        let mut lines = std::mem::take(state.lines(kind));
        lines.take(output, |line| state.line(kind, line));
        *state.lines(kind) = lines;
    }

    /// What was printed of a line is one, where an invocation ends.
    fn end_lines(&self) {
        let mut state = self.lock();
        for kind in [Kind::Function, Kind::Extension] {
            let mut lines = std::mem::take(state.lines(kind));
            lines.end(|line| state.line(kind, line));
        }
    }

    /// The instance is frozen from now on, or no longer.
    pub(super) fn pause(&self, is_paused: bool) {
        if self.is_active() {
            let mode = if is_paused { Mode::Paused } else { Mode::Runs };
            for queue in &self.lock().queues {
                queue.set_mode(mode);
            }
        }
    }

    /// The instance ends: sends what there is, and whatever comes, at once; returns when nothing is left,
    /// or the time is up.
    pub(super) async fn settle(&self, limit: Duration) {
        if !self.is_active() {
            return;
        }
        self.end_lines();
        let queues = self.lock().queues.clone();
        for queue in &queues {
            queue.set_mode(Mode::Ends);
        }
        let settled = async {
            while !queues.iter().all(|queue| queue.is_settled()) {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _ = tokio::time::timeout(limit, settled).await;
    }

    fn platform(&self, at: Moment, name: &str, record: &Value) {
        if self.is_active() {
            let event = event::at(at.unix(), &format!("platform.{name}"), record);
            self.lock().add(Kind::Platform, event);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a subscription is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// What is wrong with it, in a sentence.
    Invalid(String),
    /// The initialization is over.
    Closed,
}

/// Whether extensions are started in an instance.
pub(super) fn expects_extensions(spec: &InstanceSpec) -> bool {
    spec.architecture == Architecture::Polling && !spec.extensions.is_empty()
}

impl State {
    fn lines(&mut self, kind: Kind) -> &mut Lines {
        match kind {
            Kind::Extension => &mut self.extension_lines,
            Kind::Function | Kind::Platform => &mut self.function_lines,
        }
    }

    fn line(&mut self, kind: Kind, line: &[u8]) {
        if !self.is_closed || self.queues.iter().any(|it| it.subscription.kinds.contains(&kind)) {
            self.add(kind, event::line(kind, line));
        }
    }

    fn add(&mut self, kind: Kind, event: Bytes) {
        for queue in &self.queues {
            if queue.subscription.kinds.contains(&kind) {
                queue.push(&event);
            }
        }
        let bytes = self.early_bytes + event.len();
        if !self.is_closed && self.early.len() < MAX_EARLY_EVENTS && bytes <= MAX_EARLY_BYTES {
            self.early_bytes = bytes;
            self.early.push((kind, event));
        }
    }
}
