//! The Extensions API: what extensions ask of an instance, and what each of them does at the moment.
//!
//! External extensions are programs in the function's layers, which start before the runtime; internal
//! ones are threads of the runtime. Each registers by its name, asks for events, and rests while it waits for one.
//! Source: <https://docs.aws.amazon.com/lambda/latest/dg/runtimes-extensions-api.html>

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::Instant;

use super::message::{accepted, refusal, trace_id};
use super::request::Reply;
use super::writer::Writer;
use crate::ids;
use crate::instance::{Architecture, InstanceSpec, Request};
use crate::sandbox::http1::{Body, ExtensionHeaders, head, response};
use crate::sandbox::telemetry::{Refusal, Telemetry};
use crate::sandbox::wire::Exit;

/// Most that register, as on Lambda.
const MAX_EXTENSIONS: usize = 10;
/// Time for the end where only the runtime has extensions in it, and where there are others: Lambda's.
const INTERNAL_END: Duration = Duration::from_millis(500);
const EXTERNAL_END: Duration = Duration::from_secs(2);
/// After that, an instance whose end has begun has ended, or does not end by itself.
pub(in crate::sandbox) const MAX_END: Duration = Duration::from_secs(3);
/// Of that, the runtime has this part before the extensions are told, in percent.
const RUNTIMES_PART: u32 = 30;
/// Longest error type of an extension that is passed on, in characters.
const MAX_TYPE_CHARS: usize = 128;

pub(super) const PREFIX: &str = "/2020-01-01/extension/";

/// What an extension asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Register,
    Next,
    InitError,
    ExitError,
}

impl Asked {
    pub(super) fn of(method: &str, path: &str) -> Option<Self> {
        match (method, path) {
            ("POST", "register") => Some(Self::Register),
            ("GET", "event/next") => Some(Self::Next),
            ("POST", "init/error") => Some(Self::InitError),
            ("POST", "exit/error") => Some(Self::ExitError),
            _ => None,
        }
    }
}

/// Why an instance ends, as its extensions learn it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sandbox) enum Reason {
    /// It is not needed any more.
    Spindown,
    Timeout,
    Failure,
}

/// How an extension has failed, by Lambda's name for it and in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::sandbox) struct ExtensionFailure {
    pub kind: String,
    pub message: String,
}

/// The extensions of one instance.
pub(in crate::sandbox) struct Extensions {
    /// What each learns of the function when it registers.
    about: String,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    /// Names of the external ones that have not registered.
    expected: Vec<String>,
    members: Vec<Member>,
    /// Whether none can register any more.
    closed: bool,
    /// Whether the instance ends, so that nobody's end is a failure.
    ending: bool,
    runtime_ended: bool,
    failure: Option<ExtensionFailure>,
}

struct Member {
    name: String,
    id: String,
    external: bool,
    /// Which events it has registered for.
    invoke: bool,
    shutdown: bool,
    /// Whether it has asked for an event.
    is_ready: bool,
    activity: Activity,
    ended: bool,
    /// What it says it has failed of.
    error: Option<String>,
}

enum Activity {
    /// It has not asked for its next event yet.
    Works,
    /// It has asked, and its event waits for nothing but to be sent: the connection was lost meanwhile.
    Owed(Vec<u8>),
    Rests(Waiting),
}

struct Waiting {
    connection: u64,
    writer: Arc<AsyncMutex<Writer>>,
}

#[derive(Deserialize)]
struct Registration {
    #[serde(default)]
    events: Vec<String>,
}

impl Extensions {
    pub(in crate::sandbox) fn new(spec: &InstanceSpec) -> Self {
        let name = spec.function.split_once(':').map_or(&*spec.function, |(name, _)| name);
        let about = json!({
            "functionName": name,
            "functionVersion": spec.version,
            "handler": spec.handler,
            "accountId": spec.function_arn.split(':').nth(4).unwrap_or_default(),
        });
        let polls = spec.architecture == Architecture::Polling;
        let expected = if polls { spec.extensions.clone() } else { Vec::new() };
        let state = State { expected, ..State::default() };
        Self { about: about.to_string(), state: Mutex::new(state), changes: watch::Sender::new(0) }
    }

    /// Whether there is any, external or registered.
    pub(in crate::sandbox) fn exist(&self) -> bool {
        let state = self.lock();
        !state.members.is_empty() || !state.expected.is_empty()
    }

    /// How many connections they may have at a time.
    pub(super) fn connections(&self) -> usize {
        let state = self.lock();
        2 * (state.expected.len() + state.members.len()).min(2 * MAX_EXTENSIONS)
    }

    /// Has those who wait look again.
    pub(super) fn note_change(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Resolves with what `look` finds, as soon as it finds something.
    pub(in crate::sandbox) async fn until<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        loop {
            if let Some(result) = look() {
                return result;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until all external ones have registered.
    pub(in crate::sandbox) async fn registered(&self) -> Result<(), ExtensionFailure> {
        self.until(|| {
            let state = self.lock();
            let failure = state.failure.clone().map(Err);
            failure.or_else(|| state.expected.is_empty().then_some(Ok(())))
        })
        .await
    }

    /// Resolves with how one has failed, once one has.
    pub(in crate::sandbox) async fn failed(&self) -> ExtensionFailure {
        self.until(|| self.failure()).await
    }

    pub(in crate::sandbox) fn failure(&self) -> Option<ExtensionFailure> {
        self.lock().failure.clone()
    }

    /// Whether all of them wait for an event, or how one has failed.
    pub(in crate::sandbox) fn rest(&self) -> Option<Result<(), ExtensionFailure>> {
        let state = self.lock();
        if let Some(failure) = &state.failure {
            return Some(Err(failure.clone()));
        }
        state.members.iter().all(Member::rests).then_some(Ok(()))
    }

    /// The names of those that have not registered, or work.
    pub(in crate::sandbox) fn working(&self) -> Vec<String> {
        let state = self.lock();
        let working = state.members.iter().filter(|it| !it.rests()).map(|it| &it.name);
        state.expected.iter().chain(working).cloned().collect()
    }

    /// The runtime asks for its first event: none can register any more.
    pub(super) fn close_registration(&self) {
        self.lock().closed = true;
    }

    /// Answers a request; None if its answer comes with the next event. `connection`: that which it came on.
    pub(super) fn answer(
        &self,
        asked: Asked,
        headers: &ExtensionHeaders,
        body: &Body,
        connection: u64,
        writer: &Arc<AsyncMutex<Writer>>,
        telemetry: &Telemetry,
    ) -> Option<Reply> {
        let reply = match asked {
            Asked::Register => {
                // Before its name is known, so that nothing that it causes is missing.
                telemetry.activate();
                Some(self.register(headers, &body.bytes))
            }
            Asked::Next => {
                let waiting = Waiting { connection, writer: writer.clone() };
                self.next(headers, waiting, telemetry)
            }
            Asked::InitError | Asked::ExitError => Some(self.report(asked, headers)),
        };
        self.note_change();
        reply
    }

    fn register(&self, headers: &ExtensionHeaders, body: &[u8]) -> Reply {
        let refused = |kind: &str, message: &str| refusal(403, kind, message);
        let Some(name) = headers.name.as_ref().filter(|name| !name.is_empty()) else {
            return refused("Extension.InvalidExtensionName", "Empty extension name");
        };
        let body = if body.is_empty() { b"{}" } else { body };
        let registration: Registration = match serde_json::from_slice(body) {
            Ok(registration) => registration,
            Err(error) => return refused("InvalidRequestFormat", &error.to_string()),
        };
        let mut state = self.lock();
        let index = state.expected.iter().position(|expected| expected == name);
        let external = index.is_some();
        if state.members.iter().any(|member| member.name == *name) {
            return refused("Extension.AlreadyRegistered", "It has registered already");
        }
        if state.closed {
            let message = "The runtime has asked for its first event: none can register any more";
            return refused("Extension.RegistrationClosed", message);
        }
        if state.members.len() == MAX_EXTENSIONS {
            let message = format!("At most {MAX_EXTENSIONS} extensions can register");
            return refused("Extension.TooManyExtensions", &message);
        }
        let (mut invoke, mut shutdown) = (false, false);
        for event in &registration.events {
            match event.as_str() {
                "INVOKE" => invoke = true,
                "SHUTDOWN" if external => shutdown = true,
                "SHUTDOWN" => {
                    let message = "ShutdownEventNotSupportedForInternalExtension";
                    return refused("Extension.InvalidEventType", message);
                }
                other => {
                    let message = format!("There are INVOKE and SHUTDOWN, and no event {other:?}");
                    return refused("Extension.InvalidEventType", &message);
                }
            }
        }
        if let Some(index) = index {
            state.expected.remove(index);
        }
        let id = ids::uuid();
        let headers = [("Lambda-Extension-Identifier", id.as_str())];
        let mut bytes = head(200, self.about.len(), &headers);
        bytes.extend_from_slice(self.about.as_bytes());
        state.members.push(Member {
            name: name.clone(),
            id,
            external,
            invoke,
            shutdown,
            is_ready: false,
            activity: Activity::Works,
            ended: false,
            error: None,
        });
        Reply { bytes, refused: false }
    }

    fn next(
        &self,
        headers: &ExtensionHeaders,
        waiting: Waiting,
        telemetry: &Telemetry,
    ) -> Option<Reply> {
        let mut state = self.lock();
        let member = match state.find(headers) {
            Ok(member) => member,
            Err(reply) => return Some(reply),
        };
        if !std::mem::replace(&mut member.is_ready, true) {
            telemetry.extension_ready(&member.name, &member.events());
        }
        match std::mem::replace(&mut member.activity, Activity::Works) {
            Activity::Owed(bytes) => Some(Reply { bytes, refused: false }),
            Activity::Works => {
                member.activity = Activity::Rests(waiting);
                None
            }
            // Of two requests the newer one counts: the other's connection may be lost.
            Activity::Rests(_) => {
                member.activity = Activity::Rests(waiting);
                None
            }
        }
    }

    /// Has one be sent telemetry.
    pub(super) fn subscribe(
        &self,
        headers: &ExtensionHeaders,
        body: &Body,
        telemetry: &Telemetry,
    ) -> Reply {
        let name = match self.lock().find(headers) {
            Ok(member) => member.name.clone(),
            Err(reply) => return reply,
        };
        match telemetry.subscribe(&name, &body.bytes) {
            Ok(()) => Reply { bytes: response(200, b"\"OK\""), refused: false },
            Err(Refusal::Invalid(message)) => refusal(400, "ValidationError", &message),
            Err(Refusal::Closed) => {
                let message =
                    "The runtime has asked for its first event: none can subscribe any more";
                refusal(403, "Telemetry.SubscriptionClosed", message)
            }
        }
    }

    fn report(&self, asked: Asked, headers: &ExtensionHeaders) -> Reply {
        let mut state = self.lock();
        let member = match state.find(headers) {
            Ok(member) => member,
            Err(reply) => return reply,
        };
        let Some(kind) = &headers.error_type else {
            let message = "Lambda-Extension-Function-Error-Type is missing";
            return refusal(403, "Extension.MissingHeader", message);
        };
        let kind: String = kind.chars().take(MAX_TYPE_CHARS).collect();
        if asked == Asked::InitError {
            let message = format!("The extension {} could not initialize: {kind}", member.name);
            state.fail("Extension.InitError", message);
        } else {
            // Its end follows.
            member.error = Some(kind);
        }
        accepted()
    }

    /// A connection is gone; who waited on it has to ask again.
    pub(super) fn lose(&self, connection: u64) {
        let mut state = self.lock();
        for member in &mut state.members {
            if matches!(&member.activity, Activity::Rests(it) if it.connection == connection) {
                member.activity = Activity::Works;
            }
        }
    }

    /// Tells all who want to know that the function is invoked. `deadline`: in Unix ms.
    pub(super) async fn invoke(&self, request: &Request, arn: &str, deadline: i64) {
        let event = json!({
            "eventType": "INVOKE",
            "deadlineMs": deadline,
            "requestId": request.request_id,
            "invokedFunctionArn": request.invoked_arn.as_deref().unwrap_or(arn),
            "tracing": {"type": "X-Amzn-Trace-Id", "value": trace_id(&request.request_id)},
        });
        self.send(&event.to_string(), |member| member.invoke).await;
    }

    /// Tells all who want to know that the instance ends. `deadline`: in Unix ms.
    async fn announce_end(&self, reason: Reason, deadline: i64) {
        let reason = match reason {
            Reason::Spindown => "spindown",
            Reason::Timeout => "timeout",
            Reason::Failure => "failure",
        };
        let event =
            json!({"eventType": "SHUTDOWN", "shutdownReason": reason, "deadlineMs": deadline});
        self.send(&event.to_string(), |member| member.shutdown && !member.ended).await;
    }

    async fn send(&self, event: &str, wants: impl Fn(&Member) -> bool) {
        let id = ids::uuid();
        let headers = [("Lambda-Extension-Event-Identifier", id.as_str())];
        let mut message = head(200, event.len(), &headers);
        message.extend_from_slice(event.as_bytes());
        let mut writers = Vec::new();
        for member in self.lock().members.iter_mut().filter(|member| wants(member)) {
            match std::mem::replace(&mut member.activity, Activity::Works) {
                Activity::Rests(waiting) => writers.push(waiting.writer),
                Activity::Works | Activity::Owed(_) => {
                    member.activity = Activity::Owed(message.clone());
                }
            }
        }
        for writer in writers {
            // Whoever does not read it loses it.
            let _ = writer.lock().await.send(&message).await;
        }
        self.note_change();
    }

    /// The program of one has ended.
    pub(in crate::sandbox) fn ended(&self, name: &str, exit: Exit) {
        let mut state = self.lock();
        state.expected.retain(|expected| expected != name);
        let mut error = None;
        if let Some(member) = state.members.iter_mut().find(|member| member.name == name) {
            member.ended = true;
            error = member.error.clone();
        }
        let why = error.map(|error| format!(" after it had reported {error}")).unwrap_or_default();
        state.fail("Extension.Crash", format!("The extension {name} has ended{why}: {exit}"));
        drop(state);
        self.note_change();
    }

    /// The program of one cannot be started.
    pub(in crate::sandbox) fn not_started(&self, name: &str, reason: &str) {
        let message = format!("The extension {name} cannot be started: {reason}");
        self.lock().fail("Extension.LaunchError", message);
        self.note_change();
    }

    pub(super) fn has_runtime_ended(&self) -> bool {
        self.lock().runtime_ended
    }

    pub(in crate::sandbox) fn runtime_ended(&self) {
        self.lock().runtime_ended = true;
        self.note_change();
    }

    /// Ends them in order, and the runtime before: `terminate` asks it to. Returns when their time is up,
    /// or all have ended.
    pub(in crate::sandbox) async fn end(
        &self,
        reason: Reason,
        telemetry: &Telemetry,
        terminate: impl FnOnce(),
    ) {
        let limit = {
            let mut state = self.lock();
            state.ending = true;
            let external = state.members.iter().any(|it| it.external) || !state.expected.is_empty();
            if external { EXTERNAL_END } else { INTERNAL_END }
        };
        let (now, unix) = (Instant::now(), crate::clock::unix_ns() / 1_000_000);
        terminate();
        let runtimes_part = limit * RUNTIMES_PART / 100;
        let runtime = self.until(|| self.lock().runtime_ended.then_some(()));
        let _ = tokio::time::timeout(runtimes_part, runtime).await;
        // They have all of it before they are told to end.
        telemetry.settle(runtimes_part.saturating_sub(now.elapsed())).await;
        let milliseconds = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        self.announce_end(reason, unix.saturating_add(milliseconds)).await;
        let all = self.until(|| self.lock().is_over().then_some(()));
        let _ = tokio::time::timeout_at(now + limit, all).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The one that a request is of.
    fn find(&mut self, headers: &ExtensionHeaders) -> Result<&mut Member, Reply> {
        let Some(id) = &headers.id else {
            let message = "Lambda-Extension-Identifier is missing";
            return Err(refusal(403, "Extension.MissingExtensionIdentifier", message));
        };
        self.members.iter_mut().find(|member| member.id == *id).ok_or_else(|| {
            let message = "No extension has registered and been given this identifier";
            refusal(403, "Extension.UnknownExtensionIdentifier", message)
        })
    }

    /// Notes the first failure. Whoever ends with the instance does as it should.
    fn fail(&mut self, kind: &str, message: String) {
        if !self.ending && self.failure.is_none() {
            self.failure = Some(ExtensionFailure { kind: kind.to_owned(), message });
        }
    }

    /// Whether there is nobody left whose end is waited for: those that want to know of it.
    fn is_over(&self) -> bool {
        let waited_for =
            |it: &Member| if it.external { it.shutdown && !it.ended } else { !self.runtime_ended };
        !self.members.iter().any(waited_for)
    }
}

impl Member {
    /// The names of those that it has registered for.
    fn events(&self) -> Vec<&'static str> {
        let wanted = [("INVOKE", self.invoke), ("SHUTDOWN", self.shutdown)];
        wanted.into_iter().filter(|(_, wants)| *wants).map(|(name, _)| name).collect()
    }

    fn rests(&self) -> bool {
        self.ended || matches!(self.activity, Activity::Rests(_))
    }
}
