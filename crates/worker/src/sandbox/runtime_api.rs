//! The Lambda Runtime API of one instance: where its runtime fetches events and leaves answers.
//!
//! Everything that comes in is the function's: each buffer has a limit, and the worker's time is
//! charged to the instance's [`Pace`].

use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use nix::sys::socket::{MsgFlags, recv, setsockopt, sockopt};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::http1::{Body, Head, HttpError, Reader, head, response};
use super::pace::{Pace, Paced, REQUEST};
use super::peer::peer_user;
use crate::clock::Moment;
use crate::instance::Request;

/// Lambda's limit of an answer: 6 MiB and 100 bytes.
pub const MAX_ANSWER: u64 = 6 * 1024 * 1024 + 100;

/// Longest description of a failed initialization.
const MAX_INIT_ERROR: u64 = 256 * 1024;

/// Connections of one instance at a time. Runtimes use one or two; a function that opens more must
/// not use up the worker's descriptors.
const MAX_CONNECTIONS: usize = 8;

/// The kernel's buffer for what a connection has sent and the worker has not read, which the kernel
/// doubles. It counts as nobody's memory.
const RECEIVE_BUFFER: usize = 128 * 1024;

/// A body that belongs to no invocation must be there by then; an answer may take as long as the
/// invocation.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// After a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Payloads up to this size are sent in one write with their head.
const ONE_WRITE: usize = 64 * 1024;

/// Held answers beyond this are sent at once.
const MAX_HELD: usize = 16 * 1024;

/// How often a runtime may ask for an event and close the connection before it can be given one.
const MAX_BROKEN: usize = 3;

/// Reading what a runtime has left in its sockets when it ended takes a moment.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

const NS_PER_MS: i64 = 1_000_000;

const PREFIX: &str = "/2018-06-01/runtime/";

/// How initialization ended, as the runtime says.
#[derive(Debug)]
pub enum Initialized {
    /// It asks for the first event. `began`: when its client's first line ran, if it
    /// says, by the monotonic clock in ns.
    Ready {
        at: Moment,
        began: Option<i64>,
    },
    Failed {
        error_type: Option<String>,
        payload: Bytes,
    },
}

/// What the runtime answered, and when all of it was there.
#[derive(Debug)]
pub struct Answer {
    pub at: Moment,
    pub kind: AnswerKind,
}

#[derive(Debug)]
pub enum AnswerKind {
    Response(Bytes),
    Error(Bytes),
    TooLarge(u64),
}

/// An event that was handed over: since when its time runs, and the answer to come.
pub struct Delivered {
    pub since: Instant,
    pub answer: oneshot::Receiver<Answer>,
}

/// Why no event could be handed over.
#[derive(Debug, thiserror::Error)]
#[error("the runtime asked for events and closed the connection, {MAX_BROKEN} times")]
pub struct Unreachable;

pub struct RuntimeApi {
    function_arn: String,
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
}

struct State {
    waiting: Option<Waiting>,
    current: Option<Current>,
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
    answer: oneshot::Sender<Answer>,
    /// The connection on which its answer is being received.
    receiving: Option<u64>,
}

/// A connection's sending side.
struct Writer {
    half: OwnedWriteHalf,
    /// Answers that wait to be sent with the next: see [`super::http1`].
    held: Vec<u8>,
}

impl Writer {
    /// Sends the beginning of a message; returns how much of it, once there is some.
    async fn begin(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.half.write_all(&held).await?;
        }
        self.half.write(bytes).await
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.held.is_empty() {
            return self.half.write_all(bytes).await;
        }
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        self.half.write_all(&held).await
    }

    /// Sends what [`Self::begin`] has not sent of an event.
    async fn finish(&mut self, rest: &[u8], request: &Request, close: bool) -> io::Result<()> {
        self.half.write_all(rest).await?;
        if request.payload.len() > ONE_WRITE {
            self.half.write_all(&request.payload).await?;
        }
        if close {
            self.half.shutdown().await?;
        }
        Ok(())
    }

    /// Whether the client has not closed the connection, as far as is known.
    fn is_open(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recv(self.half.as_ref().as_raw_fd(), &mut [0], flags) {
            Ok(count) => count > 0,
            Err(error) => error == nix::errno::Errno::EAGAIN,
        }
    }
}

/// What a request is, known from its head.
enum Operation<'a> {
    Next,
    InitError,
    Answer { id: &'a str, is_error: bool },
    Unknown,
}

impl<'a> Operation<'a> {
    fn of(head: &'a Head) -> Self {
        let path = head.request.path.strip_prefix(PREFIX).unwrap_or_default();
        match (head.request.method.as_str(), path) {
            ("GET", "invocation/next") => Self::Next,
            ("POST", "init/error") => Self::InitError,
            ("POST", path) => {
                match path.strip_prefix("invocation/").and_then(|it| it.split_once('/')) {
                    Some((id, "response")) => Self::Answer { id, is_error: false },
                    Some((id, "error")) => Self::Answer { id, is_error: true },
                    _ => Self::Unknown,
                }
            }
            _ => Self::Unknown,
        }
    }
}

/// A reply to a request, and whether the request was of use.
struct Reply {
    bytes: Vec<u8>,
    refused: bool,
}

impl RuntimeApi {
    /// The API, and how initialization ended once it has. `json`: answers must be JSON.
    pub fn new(function_arn: String, json: bool) -> (Arc<Self>, oneshot::Receiver<Initialized>) {
        let (initialized, outcome) = oneshot::channel();
        let state =
            State { waiting: None, current: None, initialized: Some(initialized), connections: 0 };
        let api = Self {
            function_arn,
            json,
            pace: Pace::new(),
            state: Mutex::new(state),
            parked: Notify::new(),
            draining: watch::Sender::new(false),
            listeners: watch::Sender::new(0),
        };
        (Arc::new(api), outcome)
    }

    /// What the instance may make the worker do.
    pub fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// The name of the invocation that the runtime works on.
    pub fn invocation(&self) -> Option<String> {
        self.lock().current.as_ref().map(|current| current.invocation.clone())
    }

    /// Serves connections until it is dropped, or until [`Self::drain`] has read what is left; with
    /// `user`, only those of this user's processes.
    pub fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        user: Option<u32>,
    ) -> impl Future<Output = ()> + Send {
        self.listeners.send_modify(|count| *count += 1);
        let served = Served(self);
        async move {
            let api = &served.0;
            accept(listener, api, |stream| {
                let api = api.clone();
                async move {
                    if user.is_none() || user == peer_user(&stream) {
                        api.converse(stream).await;
                    }
                }
            })
            .await;
        }
    }

    /// Reads what the runtime, which has ended, left in its sockets: it may be an answer.
    pub async fn drain(&self) {
        self.draining.send_replace(true);
        let mut listeners = self.listeners.subscribe();
        // On the host's network, others may have connections.
        let _ = timeout(DRAIN_TIMEOUT, listeners.wait_for(|count| *count == 0)).await;
    }

    /// Forgets the runtime, which has ended: nothing is handed to it any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.waiting = None;
        state.current = None;
    }

    /// Hands an event to the runtime as soon as it asks for one. `started` is set to the moment
    /// from which on the runtime has it, or a part of it: what becomes of it then is the runtime's
    /// doing, and nobody else must be given it.
    pub async fn deliver(
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
        };
        for _ in 0..MAX_BROKEN {
            let waiting = self.claim(current).await;
            let mut writer = waiting.writer.lock().await;
            let (at, since) = (Moment::now(), Instant::now());
            let message = self.event(request, at.unix());
            if writer.is_open()
                && let Ok(sent) = writer.begin(&message).await
            {
                *started = Some(at);
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

    /// The message that carries an event; a long payload is not part of it.
    fn event(&self, request: &Request, now: i64) -> Vec<u8> {
        let limit = i64::try_from(request.timeout.as_nanos()).unwrap_or(i64::MAX);
        let deadline = (now.saturating_add(limit) / NS_PER_MS).to_string();
        let trace = trace_id(&request.request_id);
        let context = request.client_context.as_deref().and_then(plain_context);
        let mut headers = vec![
            ("Lambda-Runtime-Aws-Request-Id", request.request_id.as_str()),
            ("Lambda-Runtime-Deadline-Ms", deadline.as_str()),
            ("Lambda-Runtime-Invoked-Function-Arn", self.function_arn.as_str()),
            ("Lambda-Runtime-Trace-Id", trace.as_str()),
        ];
        if let Some(context) = &context {
            headers.push(("Lambda-Runtime-Client-Context", context));
        }
        let mut message = head(200, request.payload.len(), &headers);
        if request.payload.len() <= ONE_WRITE {
            message.extend_from_slice(&request.payload);
        }
        message
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

    /// Answers the requests of one connection.
    async fn converse(self: Arc<Self>, stream: TcpStream) {
        // Without it, answers may be late by 40 ms; with it unset they only are slower.
        let _ = stream.set_nodelay(true);
        let (source, half) = stream.into_split();
        let writer = Arc::new(AsyncMutex::new(Writer { half, held: Vec::new() }));
        let connection = {
            let mut state = self.lock();
            state.connections += 1;
            state.connections
        };
        let mut reader = Reader::new(Paced::new(source, self.pace.clone()), self.pace.clone());
        while let Ok(Some(head)) = reader.head().await {
            match self.handle(connection, &head, &mut reader, &writer).await {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        // The runtime is gone, or has given up: it must not be handed an event here.
        let mut state = self.lock();
        if state.waiting.as_ref().is_some_and(|waiting| waiting.connection == connection) {
            state.waiting = None;
        }
        if let Some(current) = state.current.as_mut()
            && current.receiving == Some(connection)
        {
            current.receiving = None;
        }
    }

    /// Answers a request, or lets it wait; whether there may be another.
    async fn handle(
        &self,
        connection: u64,
        head: &Head,
        reader: &mut Reader<Paced<OwnedReadHalf>>,
        writer: &Arc<AsyncMutex<Writer>>,
    ) -> Result<bool, HttpError> {
        if head.request.expects_continue {
            writer.lock().await.send(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let operation = Operation::of(head);
        let limit = self.most_kept(&operation, connection);
        let body = reader.body(head.request.length, limit);
        let body = if limit > 0 {
            body.await?
        } else {
            timeout(BODY_TIMEOUT, body).await.map_err(|_| HttpError::Closed)??
        };
        let again = !head.request.close && !body.endless;
        let reply = match operation {
            Operation::Next => match self.park(connection, writer, head) {
                Ok(()) => return Ok(true),
                Err(refusal) => refusal,
            },
            Operation::InitError => self.init_error(head, body),
            Operation::Answer { id, is_error } => self.answer(id, is_error, body, connection),
            Operation::Unknown => {
                refusal(404, "NotFound", "There is no such operation in the Runtime API")
            }
        };
        if reply.refused {
            self.pace.spend(REQUEST).await;
        }
        let mut writer = writer.lock().await;
        if reader.has_buffered() && again && writer.held.len() < MAX_HELD {
            writer.held.extend_from_slice(&reply.bytes);
        } else {
            // Whoever does not read replies may have more to say, for all that: an answer.
            let _ = writer.send(&reply.bytes).await;
        }
        Ok(again)
    }

    /// How much of a request's body is kept: that of what nobody waits for is not. An answer is
    /// received on one connection at a time.
    fn most_kept(&self, operation: &Operation<'_>, connection: u64) -> u64 {
        let mut state = self.lock();
        match operation {
            Operation::Answer { id, .. } => match &mut state.current {
                Some(current) if current.request_id == *id && current.receiving.is_none() => {
                    current.receiving = Some(connection);
                    MAX_ANSWER
                }
                _ => 0,
            },
            Operation::InitError if state.initialized.is_some() => MAX_INIT_ERROR,
            Operation::InitError | Operation::Next | Operation::Unknown => 0,
        }
    }

    /// Lets a request for the next event wait.
    fn park(
        &self,
        connection: u64,
        writer: &Arc<AsyncMutex<Writer>>,
        head: &Head,
    ) -> Result<(), Reply> {
        {
            let mut state = self.lock();
            if state.current.is_some() || state.waiting.is_some() {
                return Err(refusal(
                    403,
                    "InvalidStateTransition",
                    "Transition from Ready to Ready is not allowed",
                ));
            }
            state.waiting =
                Some(Waiting { connection, writer: writer.clone(), close: head.request.close });
            if let Some(initialized) = state.initialized.take() {
                // Nobody listens if the start was given up.
                let _ =
                    initialized.send(Initialized::Ready { at: Moment::now(), began: head.began });
            }
        }
        self.parked.notify_one();
        Ok(())
    }

    fn init_error(&self, head: &Head, body: Body) -> Reply {
        let Some(initialized) = self.lock().initialized.take() else {
            return refusal(403, "InvalidStateTransition", "Initialization is over");
        };
        let failed =
            Initialized::Failed { error_type: head.error_type.clone(), payload: body.bytes };
        // Nobody listens if the start was given up.
        let _ = initialized.send(failed);
        accepted()
    }

    fn answer(&self, id: &str, is_error: bool, body: Body, connection: u64) -> Reply {
        let at = Moment::now();
        let current = {
            let mut state = self.lock();
            state.current.take_if(|current| {
                current.request_id == id && current.receiving == Some(connection)
            })
        };
        let Some(current) = current else {
            return refusal(400, "InvalidRequestID", "Invalid request ID");
        };
        self.pace.answered(body.size);
        let too_large = body.size > MAX_ANSWER;
        let kind = if too_large {
            AnswerKind::TooLarge(body.size)
        } else if is_error || body.trailing_error.is_some() {
            AnswerKind::Error(body.bytes)
        } else {
            self.response(body.bytes)
        };
        // Nobody listens if the invocation's time is up.
        let _ = current.answer.send(Answer { at, kind });
        if too_large {
            let message = format!("Exceeded maximum allowed payload size ({MAX_ANSWER} bytes).");
            refusal(413, "RequestEntityTooLarge", &message)
        } else {
            accepted()
        }
    }

    fn response(&self, bytes: Bytes) -> AnswerKind {
        let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes);
        match parsed {
            Err(error) if self.json => {
                let message = format!("The answer is not JSON: {error}");
                AnswerKind::Error(error_object("Runtime.MarshalError", &message).into())
            }
            _ => AnswerKind::Response(bytes),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a listener as long as it is served.
struct Served(Arc<RuntimeApi>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.listeners.send_modify(|count| *count -= 1);
    }
}

/// Accepts an instance's connections, a few at a time; those it has end with it. When the instance
/// has ended, returns as soon as all of them, and those that wait to be accepted, were read.
pub async fn accept<F>(listener: TcpListener, api: &RuntimeApi, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    // Inherited by the connections. Without it, more of the kernel's memory is used.
    let _ = setsockopt(&listener, sockopt::RcvBuf, &RECEIVE_BUFFER);
    let mut draining = api.draining.subscribe();
    let mut connections = JoinSet::new();
    loop {
        let ended = async { drop(draining.wait_for(|draining| *draining).await) };
        tokio::select! {
            biased;
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                // Beyond the limit: closed at once.
                Ok(_) if connections.len() >= MAX_CONNECTIONS => api.pace.spend(REQUEST).await,
                Ok((stream, _)) => {
                    connections.spawn(serve(stream));
                    api.pace.spend(REQUEST).await;
                }
                // The client gave up, or the worker has no descriptor left: others may come later.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            () = ended => break,
        }
    }
    while connections.join_next().await.is_some() {}
}

fn accepted() -> Reply {
    Reply { bytes: response(202, br#"{"status":"OK"}"#), refused: false }
}

fn refusal(status: u16, kind: &str, message: &str) -> Reply {
    Reply { bytes: response(status, error_object(kind, message).as_bytes()), refused: true }
}

fn error_object(kind: &str, message: &str) -> String {
    serde_json::json!({ "errorMessage": message, "errorType": kind }).to_string()
}

/// A trace id in X-Ray's form, which is not sampled by anybody.
fn trace_id(request_id: &str) -> String {
    use sha2::{Digest, Sha256};
    let digits = hex::encode(Sha256::digest(request_id.as_bytes()));
    format!("Root=1-{}-{};Parent={};Sampled=0", &digits[..8], &digits[8..32], &digits[32..48])
}

/// The client context as runtimes expect it: JSON in ASCII, on one line.
fn plain_context(base64: &str) -> Option<String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let mut text = String::new();
    for character in value.to_string().chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    Some(text)
}
