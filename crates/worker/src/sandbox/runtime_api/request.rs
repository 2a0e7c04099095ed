//! The requests of a runtime, and what each does.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tokio::time::timeout;
use uncia_http1::HeadError;

use super::extensions::{self, Asked};
use super::message::{accepted, error_object, refusal};
use super::writer::Writer;
use super::{AnswerKind, Initialized, RuntimeAnswer, RuntimeApi, Waiting};
use crate::clock::Moment;
use crate::instance::{MAX_ANSWER, Passage};
use crate::json;
use crate::runtime::in_proportion;
use crate::sandbox::http1::{Body, Head, HttpError, Reader, response};
use crate::sandbox::pace::{Paced, REQUEST};
use crate::sandbox::telemetry::{self, Status};

/// Lambda's limit of a streamed answer: 200 MB.
const MAX_STREAMED: u64 = 200 * 1024 * 1024;

/// Longest description of a failed initialization.
const MAX_INIT_ERROR: u64 = 256 * 1024;

/// Longest registration of an extension, and longest description of its failure.
const MAX_REGISTRATION: u64 = 64 * 1024;

/// A body that belongs to no invocation must be there by then; an answer may take as long as the
/// invocation.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

const PREFIX: &str = "/2018-06-01/runtime/";

/// What a request is, known from its head.
enum Operation<'a> {
    Next,
    /// What a restored runtime asks for first: its environment.
    Restored,
    InitError,
    Answer {
        id: &'a str,
        is_error: bool,
    },
    Extension(Asked),
    Subscribe,
    Unknown,
}

impl<'a> Operation<'a> {
    fn of(head: &'a Head) -> Self {
        if let Some(path) = head.request.path.strip_prefix(extensions::PREFIX) {
            let asked = Asked::of(&head.request.method, path);
            return asked.map_or(Self::Unknown, Self::Extension);
        }
        // Lambda's own page writes the path with a slash at its end.
        if head.request.method == "PUT"
            && head.request.path.trim_end_matches('/') == telemetry::PATH
        {
            return Self::Subscribe;
        }
        let path = head.request.path.strip_prefix(PREFIX).unwrap_or_default();
        match (head.request.method.as_str(), path) {
            ("GET", "invocation/next") => Self::Next,
            ("GET", "restore/next") => Self::Restored,
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

/// How an answer came.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Error,
    Whole,
    /// As a stream, for a client that waits for the whole: bytes of any kind.
    Stream,
    /// As a stream that was passed on.
    Passed,
}

/// A reply to a request, and whether the request was of use.
pub(super) struct Reply {
    pub bytes: Vec<u8>,
    pub refused: bool,
}

impl RuntimeApi {
    /// Answers the requests of one connection.
    pub(super) async fn converse(self: Arc<Self>, stream: TcpStream) {
        // Without it, answers may be late by 40 ms; with it unset they only are slower.
        let _ = stream.set_nodelay(true);
        let (source, half) = stream.into_split();
        let writer = Arc::new(AsyncMutex::new(Writer::new(half)));
        let connection = {
            let mut state = self.lock();
            state.connections += 1;
            state.connections
        };
        let mut reader = Reader::new(Paced::new(source, self.pace.clone()), self.pace.clone());
        loop {
            let head = match reader.head().await {
                Ok(Some(head)) => head,
                Err(HttpError::Head(error)) => {
                    let status = if error == HeadError::TooLong { 431 } else { 400 };
                    self.forget(connection);
                    self.pace.spend(REQUEST).await;
                    let reply = refusal(status, "InvalidRequest", &error.to_string());
                    let _ = writer.lock().await.send(&reply.bytes).await;
                    break;
                }
                Ok(None) | Err(_) => break,
            };
            match self.handle(connection, &head, &mut reader, &writer).await {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }
        }
        self.extensions.lose(connection);
        self.forget(connection);
    }

    /// The runtime is gone, or has given up: it must not be handed an event here.
    fn forget(&self, connection: u64) {
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
        let stream = if limit > 0 { self.stream(&operation, head) } else { None };
        let passes = stream.is_some();
        let body = if let Some((passage, pieces)) = stream {
            reader.pass(head.request.length, MAX_STREAMED, &passage, &pieces).await?
        } else if limit > 0 {
            reader.body(head.request.length, limit).await?
        } else {
            let body = reader.body(head.request.length, limit);
            timeout(BODY_TIMEOUT, body).await.map_err(|_| HttpError::Closed)??
        };
        let again = !head.request.close && !body.endless;
        let reply = match operation {
            Operation::Next => match self.park(connection, writer, head) {
                Ok(()) => return Ok(true),
                Err(refusal) => refusal,
            },
            Operation::Restored => {
                Reply { bytes: response(200, &self.environment), refused: false }
            }
            Operation::InitError => self.init_error(head, body),
            Operation::Extension(asked) => {
                let headers = &head.extension;
                match self.extensions.answer(
                    asked,
                    headers,
                    &body,
                    connection,
                    writer,
                    &self.telemetry,
                ) {
                    Some(reply) => reply,
                    None => return Ok(true),
                }
            }
            Operation::Subscribe => {
                self.extensions.subscribe(&head.extension, &body, &self.telemetry)
            }
            Operation::Answer { id, is_error } => {
                let form = match (is_error, passes) {
                    (true, _) => Form::Error,
                    (false, true) => Form::Passed,
                    (false, false) if head.streams => Form::Stream,
                    (false, false) => Form::Whole,
                };
                self.answer(id, form, body, connection).await
            }
            Operation::Unknown => {
                refusal(404, "NotFound", "There is no such operation in the Runtime API")
            }
        };
        if reply.refused {
            self.pace.spend(REQUEST).await;
        }
        let mut writer = writer.lock().await;
        // More requests are there already: their replies go out together.
        if !(reader.has_buffered() && again && writer.hold_back(&reply.bytes)) {
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
                    current.answering = self.telemetry.is_active().then(Moment::now);
                    MAX_ANSWER as u64
                }
                _ => 0,
            },
            Operation::InitError if state.initialized.is_some() => MAX_INIT_ERROR,
            Operation::Extension(_) | Operation::Subscribe => MAX_REGISTRATION,
            Operation::InitError | Operation::Next | Operation::Restored | Operation::Unknown => 0,
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
                let at = Moment::now();
                self.telemetry.runtime_initialized(at, &Status::SUCCESS);
                // Nobody listens if the start was given up.
                let _ = initialized.send(Initialized::Ready {
                    at,
                    began: head.began,
                    unusable_byte_code: head.unusable_byte_code,
                });
            }
        }
        self.parked.notify_one();
        self.extensions.close_registration();
        self.telemetry.close();
        self.extensions.note_change();
        Ok(())
    }

    fn init_error(&self, head: &Head, body: Body) -> Reply {
        let Some(initialized) = self.lock().initialized.take() else {
            return refusal(403, "InvalidStateTransition", "Initialization is over");
        };
        let kind = head.error_type.as_deref().unwrap_or("Runtime.Unknown");
        self.telemetry.runtime_initialized(Moment::now(), &Status::error(kind));
        let failed =
            Initialized::Failed { error_type: head.error_type.clone(), payload: body.bytes };
        // Nobody listens if the start was given up.
        let _ = initialized.send(failed);
        accepted()
    }

    /// Begins to pass an answer on, if it is one that is made while it is sent, and its client wants that.
    fn stream(
        &self,
        operation: &Operation<'_>,
        head: &Head,
    ) -> Option<(Arc<Passage>, mpsc::Sender<Bytes>)> {
        let Operation::Answer { is_error: false, .. } = operation else { return None };
        if !head.streams {
            return None;
        }
        let passage = self.lock().current.as_ref()?.passage.clone()?;
        let mut headers = HeaderMap::new();
        let kind = head.content_type.as_deref().unwrap_or("application/octet-stream");
        if let Ok(kind) = HeaderValue::from_str(kind) {
            headers.insert(CONTENT_TYPE, kind);
        }
        // If it has begun before or nobody waits, it is taken as a whole.
        let pieces = passage.begin(StatusCode::OK, headers, None).ok()?;
        Some((passage, pieces))
    }

    async fn answer(&self, id: &str, form: Form, body: Body, connection: u64) -> Reply {
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
        let body_size = body.size;
        self.pace.answered(body_size);
        let limit = if form == Form::Passed { MAX_STREAMED } else { MAX_ANSWER as u64 };
        let too_large = body.size > limit;
        let kind = if too_large {
            AnswerKind::TooLarge(body.size)
        } else if let Some(error) = body.trailing_error {
            let kind = error.kind.as_deref().unwrap_or("Unhandled");
            let described =
                || error_object(kind, "the function failed after it had begun to answer");
            AnswerKind::Error(error.payload.unwrap_or_else(|| described().into()))
        } else {
            // Its client has the beginning of another, which broke off.
            let is_second = current.passage.as_ref().is_some_and(|it| it.has_begun());
            match form {
                Form::Error => AnswerKind::Error(body.bytes),
                Form::Whole | Form::Stream if is_second => {
                    let message = "the function broke off an answer, and began another";
                    AnswerKind::Error(error_object("Runtime.TruncatedResponse", message).into())
                }
                Form::Whole => self.response(body.bytes).await,
                Form::Stream => AnswerKind::Response(body.bytes),
                Form::Passed => AnswerKind::Passed,
            }
        };
        // Nobody listens if the invocation's time is up.
        let _ = current.answer.send(RuntimeAnswer {
            at,
            began: current.answering,
            size: body_size,
            kind,
        });
        if too_large {
            let message = format!("Exceeded maximum allowed payload size ({limit} bytes).");
            refusal(413, "RequestEntityTooLarge", &message)
        } else {
            accepted()
        }
    }

    async fn response(&self, bytes: Bytes) -> AnswerKind {
        if !self.json {
            return AnswerKind::Response(bytes);
        }
        let text = bytes.clone();
        match in_proportion(bytes.len(), move || json::check(&text)).await {
            Err(error) => {
                let message = format!("The answer is not JSON: {error}");
                AnswerKind::Error(error_object("Runtime.MarshalError", &message).into())
            }
            Ok(()) => AnswerKind::Response(bytes),
        }
    }
}
