//! The Lambda Runtime API of one instance: where its runtime fetches events and leaves answers.
//!
//! Everything that comes in is the function's: each buffer has a limit, and the worker's time is
//! charged to the instance's [`Pace`].
//!
//! | module | concern |
//! |---|---|
//! | [`accept`](mod@accept) | an instance's connections |
//! | [`request`] | the runtime's requests, and what each does |
//! | [`extensions`] | the Extensions API |
//! | [`message`] | what the runtime is sent |
//! | [`writer`] | a connection's sending side |

mod accept;
mod extensions;
mod message;
mod request;
mod writer;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot, watch};
use tokio::time::{Instant, timeout};

pub(super) use accept::{MAX_CONNECTIONS, accept};
pub(super) use extensions::{ExtensionFailure, Extensions, MAX_END, Reason};

use super::pace::Pace;
use super::peer::peer_user;
use super::telemetry::Telemetry;
use crate::clock::Moment;
use crate::ids;
use crate::instance::{Passage, Request};
use writer::Writer;

/// How often a runtime may ask for an event and close the connection before it can be given one.
const MAX_BROKEN: usize = 3;

/// Reading what a runtime has left in its sockets when it ended takes a moment.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// How initialization ended, as the runtime says.
#[derive(Debug)]
pub(super) enum Initialized {
    /// It asks for the first event. `began`: when its client's first line ran, if it
    /// says, by the monotonic clock in ns. `unusable_byte_code`: how many files of the platform's byte code
    /// it could not use.
    Ready {
        at: Moment,
        began: Option<i64>,
        unusable_byte_code: u32,
    },
    Failed {
        error_type: Option<String>,
        payload: Bytes,
    },
}

/// What the runtime answered, and when all of it was there.
#[derive(Debug)]
pub(super) struct RuntimeAnswer {
    pub at: Moment,
    /// When it began to come, if somebody wants to know.
    pub began: Option<Moment>,
    pub size: u64,
    pub kind: AnswerKind,
}

#[derive(Debug)]
pub(super) enum AnswerKind {
    Response(Bytes),
    /// It was passed to the client while it came.
    Passed,
    Error(Bytes),
    TooLarge(u64),
}

/// An event that was handed over: since when its time runs, and the answer to come.
pub(super) struct Delivered {
    pub since: Instant,
    pub answer: oneshot::Receiver<RuntimeAnswer>,
}

/// Why no event could be handed over.
#[derive(Debug, thiserror::Error)]
#[error("the runtime asked for events and closed the connection, {MAX_BROKEN} times")]
pub(super) struct Unreachable;

pub(super) struct RuntimeApi {
    function_arn: String,
    /// What a restored runtime has for an environment, in JSON; empty of one that is not.
    environment: Vec<u8>,
    /// Whether answers must be JSON. A runtime that the package brings may answer what it likes, as on
    /// Lambda.
    json: bool,
    pace: Arc<Pace>,
    state: Mutex<State>,
    /// Notified when a request for the next event starts to wait.
    parked: Notify,
    /// Set when the runtime has ended, and only what it has left is read.
    draining: watch::Sender<bool>,
    /// How many listeners are served.
    listeners: watch::Sender<usize>,
    extensions: Extensions,
    telemetry: Arc<Telemetry>,
}

struct State {
    waiting: Option<Waiting>,
    current: Option<Current>,
    /// What a server works on: the tokens that it was given, and the names of the invocations.
    served: Vec<(Arc<str>, Arc<str>)>,
    initialized: Option<oneshot::Sender<Initialized>>,
    connections: u64,
}

/// A request for the next event that has not been answered yet.
struct Waiting {
    connection: u64,
    writer: Arc<AsyncMutex<Writer>>,
    /// The client wants the connection closed after the answer.
    close: bool,
}

/// The invocation that the runtime works on.
struct Current {
    request_id: String,
    invocation: String,
    answer: oneshot::Sender<RuntimeAnswer>,
    /// The connection on which its answer is being received.
    receiving: Option<u64>,
    /// Since when, if somebody wants to know.
    answering: Option<Moment>,
    /// By which the answer may pass while it comes.
    passage: Option<Arc<Passage>>,
}

impl RuntimeApi {
    /// The API, and how initialization ended once it has. `json`: answers must be JSON.
    pub(super) fn new(
        function_arn: String,
        environment: Vec<u8>,
        json: bool,
        extensions: Extensions,
        telemetry: Arc<Telemetry>,
    ) -> (Arc<Self>, oneshot::Receiver<Initialized>) {
        let (initialized, outcome) = oneshot::channel();
        let state = State {
            waiting: None,
            current: None,
            served: Vec::new(),
            initialized: Some(initialized),
            connections: 0,
        };
        let api = Self {
            function_arn,
            environment,
            json,
            pace: Pace::new(),
            state: Mutex::new(state),
            parked: Notify::new(),
            draining: watch::Sender::new(false),
            listeners: watch::Sender::new(0),
            extensions,
            telemetry,
        };
        (Arc::new(api), outcome)
    }

    /// What runs beside the runtime.
    pub(super) fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    pub(super) fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// Waits until the runtime and all extensions wait for the next event.
    pub(super) async fn rest(&self) -> Result<(), ExtensionFailure> {
        // One that has ended asks for nothing any more.
        let asks = || self.lock().waiting.is_some() || self.extensions.has_runtime_ended();
        self.extensions.until(|| self.extensions.rest().filter(|it| it.is_err() || asks())).await
    }

    /// Who does not wait for the next event: `the extension NAME`, or the runtime.
    pub(super) fn who_works(&self) -> String {
        match self.extensions.working().as_slice() {
            [] => "the runtime".to_owned(),
            [name] => format!("the extension {name}"),
            names => format!("the extensions {}", names.join(", ")),
        }
    }

    /// What the instance may make the worker do.
    pub(super) fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// The name of the invocation for which the instance asks something of the platform, as far as that
    /// is sure: the one that it serves; of several, the one whose token it shows. Another's token is
    /// worth nothing, since only those of this instance are looked at.
    pub(super) fn asking(&self, token: Option<&str>) -> Option<String> {
        let state = self.lock();
        if let Some(current) = &state.current {
            return Some(current.invocation.clone());
        }
        let invocation = match (token, state.served.as_slice()) {
            (Some(token), served) => served.iter().find(|it| *it.0 == *token).map(|it| &it.1),
            (None, [only]) => Some(&only.1),
            (None, _) => None,
        };
        invocation.map(ToString::to_string)
    }

    /// Takes note that a server works on an invocation, until what this returns is dropped.
    pub(super) fn serves(self: &Arc<Self>, invocation: &str) -> Served {
        let token: Arc<str> = Arc::from(ids::uuid());
        self.lock().served.push((token.clone(), Arc::from(invocation)));
        Served { api: self.clone(), token }
    }

    /// Serves connections until it is dropped, or until [`Self::drain`] has read what is left; with
    /// `user`, only those of this user's processes.
    pub(super) fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        user: Option<u32>,
    ) -> impl Future<Output = ()> + Send {
        self.listeners.send_modify(|count| *count += 1);
        let served = ServedListener(self);
        async move {
            let api = &served.0;
            let is_own = |stream: &_| user.is_none() || user == peer_user(stream);
            accept(listener, api, is_own, |stream| api.clone().converse(stream)).await;
        }
    }

    /// Reads what the runtime, which has ended, left in its sockets: it may be an answer.
    pub(super) async fn drain(&self) {
        self.draining.send_replace(true);
        let mut listeners = self.listeners.subscribe();
        // On the host's network, others may have connections.
        let _ = timeout(DRAIN_TIMEOUT, listeners.wait_for(|count| *count == 0)).await;
    }

    /// Forgets the runtime, which has ended: nothing is handed to it any more.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.waiting = None;
        state.current = None;
    }

    /// Hands an event to the runtime as soon as it asks for one. `started` is set to the moment
    /// from which on the runtime has it, or a part of it: what becomes of it then is the runtime's
    /// doing, and nobody else must be given it.
    pub(super) async fn deliver(
        &self,
        request: &Request,
        started: &mut Option<Moment>,
    ) -> Result<Delivered, Unreachable> {
        let (answer, receiver) = oneshot::channel();
        let mut current = Current {
            request_id: request.request_id.clone(),
            invocation: request.invocation.clone(),
            answer,
            receiving: None,
            passage: request.passage.clone(),
            answering: None,
        };
        for attempt in 0..MAX_BROKEN {
            let waiting = self.claim(current).await;
            if attempt == 0 && self.extensions.exist() {
                let deadline = message::deadline_ms(request, Moment::now().unix());
                self.extensions.invoke(request, &self.function_arn, deadline).await;
            }
            let mut writer = waiting.writer.lock().await;
            let (at, since) = (Moment::now(), Instant::now());
            let message = message::event(request, &self.function_arn, at.unix());
            if writer.is_open()
                && let Ok(sent) = writer.begin(&message).await
            {
                *started = Some(at);
                if self.telemetry.is_active() {
                    let trace = message::trace_id(&request.request_id);
                    self.telemetry.started(&request.request_id, trace, at);
                }
                // If the connection breaks now, the runtime may have read the event all the same, and
                // may answer on another.
                let _ = writer.finish(&message[sent..], request, waiting.close).await;
                return Ok(Delivered { since, answer: receiver });
            }
            // It did not wait for the event: nobody has seen it.
            match self.lock().current.take() {
                Some(unseen) => current = unseen,
                None => break,
            }
        }
        Err(Unreachable)
    }

    /// Waits for the runtime to ask, and makes `current` the invocation that it works on.
    async fn claim(&self, current: Current) -> Waiting {
        loop {
            {
                let mut state = self.lock();
                if let Some(waiting) = state.waiting.take() {
                    state.current = Some(current);
                    return waiting;
                }
            }
            // A permit is kept if the request comes between the look and this.
            self.parked.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An invocation that a server works on.
pub(super) struct Served {
    api: Arc<RuntimeApi>,
    token: Arc<str>,
}

impl Served {
    /// What the server is given with the request, and may show when it asks something for it.
    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.api.lock().served.retain(|it| !Arc::ptr_eq(&it.0, &self.token));
    }
}

/// Counts a listener as long as it is served.
struct ServedListener(Arc<RuntimeApi>);

impl Drop for ServedListener {
    fn drop(&mut self) {
        self.0.listeners.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::environment::tests::spec;

    fn api() -> Arc<RuntimeApi> {
        let spec = spec("python", &[]);
        let (extensions, telemetry) = (Extensions::new(&spec), Telemetry::new(&spec));
        RuntimeApi::new("arn".to_owned(), Vec::new(), true, extensions, telemetry).0
    }

    #[test]
    fn a_server_asks_for_what_it_serves_and_for_nothing_else() {
        let (api, other) = (api(), api());
        assert_eq!(api.asking(None), None);
        let first = api.serves("first");
        assert_eq!(api.asking(None).as_deref(), Some("first"));
        let second = api.serves("second");
        assert_eq!(api.asking(None), None, "either may ask");
        assert_eq!(api.asking(Some(first.token())).as_deref(), Some("first"));
        assert_eq!(api.asking(Some(second.token())).as_deref(), Some("second"));
        let elsewhere = other.serves("elsewhere");
        assert_eq!(api.asking(Some(elsewhere.token())), None);
        let spent = first.token().to_owned();
        drop(first);
        assert_eq!(api.asking(Some(&spent)), None);
        assert_eq!(api.asking(None).as_deref(), Some("second"));
    }
}
