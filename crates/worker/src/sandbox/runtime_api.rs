//! The Lambda Runtime API of one instance: where its runtime fetches events and leaves answers.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot};
use tokio::task::JoinSet;

use super::http1::{Body, Head, HttpError, Reader, head, response};
use super::peer::peer_user;
use crate::clock::Moment;
use crate::instance::Request;

/// Lambda's limit of an answer: 6 MiB and 100 bytes.
pub const MAX_ANSWER: u64 = 6 * 1024 * 1024 + 100;

/// Connections of one instance at a time. Runtimes use one or two; a function that opens more must
/// not use up the worker's descriptors.
const MAX_CONNECTIONS: usize = 8;

/// After a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Payloads up to this size are sent in one write with their head.
const ONE_WRITE: usize = 64 * 1024;

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

/// An event on its way: when it was handed over, and the answer to come.
pub struct Delivered {
    pub at: Moment,
    pub answer: oneshot::Receiver<Answer>,
}

pub struct Api {
    function_arn: String,
    state: Mutex<State>,
    /// Notified when a request for the next event starts to wait.
    parked: Notify,
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
    answer: oneshot::Sender<Answer>,
}

/// A connection's sending side.
struct Writer {
    half: OwnedWriteHalf,
    /// Answers that wait to be sent with the next: see [`super::http1`].
    held: Vec<u8>,
}

impl Writer {
    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.held.is_empty() {
            return self.half.write_all(bytes).await;
        }
        self.held.extend_from_slice(bytes);
        let result = self.half.write_all(&self.held).await;
        self.held.clear();
        result
    }
}

impl Api {
    /// The API, and how initialization ended once it has.
    pub fn new(function_arn: String) -> (Arc<Self>, oneshot::Receiver<Initialized>) {
        let (initialized, outcome) = oneshot::channel();
        let state =
            State { waiting: None, current: None, initialized: Some(initialized), connections: 0 };
        let api = Self { function_arn, state: Mutex::new(state), parked: Notify::new() };
        (Arc::new(api), outcome)
    }

    /// Serves connections until it is dropped; with `user`, only those of this user's processes.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, user: Option<u32>) {
        accept(listener, |stream| {
            let api = self.clone();
            async move {
                if user.is_none() || user == peer_user(&stream) {
                    api.converse(stream).await;
                }
            }
        })
        .await;
    }

    /// Forgets the runtime, which has ended: nothing is handed to it any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.waiting = None;
        state.current = None;
    }

    /// Hands an event to the runtime as soon as it asks for one.
    pub async fn deliver(&self, request: &Request, deadline_ms: i64) -> io::Result<Delivered> {
        let (answer, receiver) = oneshot::channel();
        let current = Current { request_id: request.request_id.clone(), answer };
        let waiting = self.claim(current).await;
        let deadline = deadline_ms.to_string();
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
        let mut writer = waiting.writer.lock().await;
        let at = Moment::now();
        if request.payload.len() <= ONE_WRITE {
            message.extend_from_slice(&request.payload);
            writer.send(&message).await?;
        } else {
            writer.send(&message).await?;
            writer.send(&request.payload).await?;
        }
        if waiting.close {
            writer.half.shutdown().await?;
        }
        Ok(Delivered { at, answer: receiver })
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
        let mut reader = Reader::new(source);
        while let Ok(Some(head)) = reader.head().await {
            match self.handle(connection, &head, &mut reader, &writer).await {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        // The runtime is gone, or has given up waiting: it must not be handed an event.
        let mut state = self.lock();
        if state.waiting.as_ref().is_some_and(|waiting| waiting.connection == connection) {
            state.waiting = None;
        }
    }

    /// Answers a request, or lets it wait; whether there may be another.
    async fn handle(
        &self,
        connection: u64,
        head: &Head,
        reader: &mut Reader<tokio::net::tcp::OwnedReadHalf>,
        writer: &Arc<AsyncMutex<Writer>>,
    ) -> Result<bool, HttpError> {
        if head.expects_continue {
            writer.lock().await.send(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let body = reader.body(head.length, MAX_ANSWER).await?;
        let path = head.path.strip_prefix(PREFIX).unwrap_or_default();
        let reply = match (head.method.as_str(), path) {
            ("GET", "invocation/next") => match self.park(connection, writer, head) {
                Ok(()) => return Ok(true),
                Err(refusal) => refusal,
            },
            ("POST", "init/error") => self.init_error(head, body),
            ("POST", path) => {
                match path.strip_prefix("invocation/").and_then(|it| it.split_once('/')) {
                    Some((id, "response")) => self.answer(id, false, body),
                    Some((id, "error")) => self.answer(id, true, body),
                    _ => not_found(),
                }
            }
            _ => not_found(),
        };
        let mut writer = writer.lock().await;
        if reader.has_buffered() && !head.close {
            writer.held.extend_from_slice(&reply);
        } else {
            writer.send(&reply).await?;
        }
        Ok(!head.close)
    }

    /// Lets a request for the next event wait.
    fn park(
        &self,
        connection: u64,
        writer: &Arc<AsyncMutex<Writer>>,
        head: &Head,
    ) -> Result<(), Vec<u8>> {
        {
            let mut state = self.lock();
            if state.current.is_some() || state.waiting.is_some() {
                return Err(refusal(
                    403,
                    "InvalidStateTransition",
                    "Transition from Ready to Ready is not allowed",
                ));
            }
            state.waiting = Some(Waiting { connection, writer: writer.clone(), close: head.close });
            if let Some(initialized) = state.initialized.take() {
                // Nobody listens if the start was given up.
                let _ =
                    initialized.send(Initialized::Ready { at: Moment::now(), began: head.began });
            }
        }
        self.parked.notify_one();
        Ok(())
    }

    fn init_error(&self, head: &Head, body: Body) -> Vec<u8> {
        let Some(initialized) = self.lock().initialized.take() else {
            return refusal(403, "InvalidStateTransition", "Initialization is over");
        };
        let failed =
            Initialized::Failed { error_type: head.error_type.clone(), payload: body.bytes };
        // Nobody listens if the start was given up.
        let _ = initialized.send(failed);
        accepted()
    }

    fn answer(&self, id: &str, is_error: bool, body: Body) -> Vec<u8> {
        let at = Moment::now();
        let current = {
            let mut state = self.lock();
            state.current.take_if(|current| current.request_id == id)
        };
        let Some(current) = current else {
            return refusal(400, "InvalidRequestID", "Invalid request ID");
        };
        let too_large = body.size > MAX_ANSWER;
        let kind = if too_large {
            AnswerKind::TooLarge(body.size)
        } else if is_error || body.trailing_error.is_some() {
            AnswerKind::Error(body.bytes)
        } else {
            AnswerKind::Response(body.bytes)
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Accepts connections, a few at a time; those it has end with it.
pub async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // Beyond the limit: closed at once.
                Ok(_) if connections.len() >= MAX_CONNECTIONS => {}
                Ok((stream, _)) => {
                    connections.spawn(serve(stream));
                }
                // The client gave up, or the worker has no descriptor left: others may come later.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

fn accepted() -> Vec<u8> {
    response(202, br#"{"status":"OK"}"#)
}

fn not_found() -> Vec<u8> {
    refusal(404, "NotFound", "There is no such operation in the Runtime API")
}

fn refusal(status: u16, kind: &str, message: &str) -> Vec<u8> {
    let body = serde_json::json!({ "errorMessage": message, "errorType": kind });
    response(status, body.to_string().as_bytes())
}

/// A trace id in X-Ray's form, which is not sampled by anybody.
fn trace_id(request_id: &str) -> String {
    use std::fmt::Write;

    use sha2::{Digest, Sha256};
    let mut digits = String::with_capacity(64);
    for byte in Sha256::digest(request_id.as_bytes()) {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
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
