//! Answers that go out while the function makes them: to a URL as they are, and to
//! InvokeWithResponseStream as events.
//!
//! The end of such an answer waits for its row in the log. One whose function fails in the middle ends with
//! an event that says so, or, where there are no events, with its connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::body::HangUp;
use super::error::{Answer, ApiError, empty_answer};
use super::invoke::{self, Call, MAX_PAYLOAD_BYTES};
use super::{Api, hints, urls};
use crate::answer_body::{AnswerBody, End, Passing};
use crate::dispatch::{Completion, Disposition};
use crate::failure::Failure;
use crate::function::Function;
use crate::instance::{Outcome, Passage};
use crate::passage::Begun;

/// The type of a streamed answer that begins with its status and headers in JSON.
pub(super) const INTEGRATION: &str = "application/vnd.awslambda.http-integration-response";
/// What ends that beginning.
pub(super) const PRELUDE_END: &[u8] = &[0; 8];
/// The longest such beginning, as the longest head of an answer.
const MAX_PRELUDE_BYTES: usize = 64 * 1024;
/// The longest that is said of an error in an event.
const MAX_DETAILS_BYTES: usize = 256 * 1024;

/// An answer that has been cut off must be gone by then, or its connection is closed.
const CUT_TIMEOUT: Duration = Duration::from_secs(1);
/// A client must have read the rest of a complete answer by then.
const REST_TIMEOUT: Duration = Duration::from_secs(60);

/// How an answer begins.
pub(super) enum Beginning {
    /// All of it is there, or there is none.
    Whole(Completion),
    Begun(Stream),
}

/// An answer that is being made.
pub(super) struct Stream {
    begun: Begun,
    completed: Running,
    hang_up: Option<HangUp>,
}

type Running = std::pin::Pin<Box<dyn Future<Output = Result<Completion, ApiError>> + Send>>;

/// Runs a function; its answer may be streamed.
pub(super) async fn begin(api: &Arc<Api>, call: Call) -> Result<Beginning, ApiError> {
    let (passage, begun) = Passage::new();
    pass(api, call, passage, begun).await
}

/// Runs a function with this passage.
pub(super) async fn pass(
    api: &Arc<Api>,
    call: Call,
    passage: Passage,
    begun: oneshot::Receiver<Begun>,
) -> Result<Beginning, ApiError> {
    let api = api.clone();
    let run = async move { invoke::run(&api, call, Some(Arc::new(passage))).await };
    let mut completed: Running = Box::pin(run);
    tokio::select! {
        biased;
        Ok(begun) = begun => Ok(Beginning::Begun(Stream { begun, completed, hang_up: None })),
        completion = &mut completed => completion.map(Beginning::Whole),
    }
}

impl Stream {
    /// With the request's connection, which is closed if the client does not read.
    pub(super) fn with_head(self, head: &Parts) -> Self {
        Self { hang_up: head.extensions.get::<HangUp>().cloned(), ..self }
    }

    /// The answer as it comes.
    pub(super) fn pass(self) -> Answer {
        let Self { begun, completed, hang_up } = self;
        let Begun { status, headers, announced, pieces, is_cut } = begun;
        let is_switched = status == StatusCode::SWITCHING_PROTOCOLS;
        let body = if is_switched {
            AnswerBody::default()
        } else {
            let end = watch(completed, is_cut, hang_up, as_it_is);
            AnswerBody::Passing(Passing::new(pieces, announced, end))
        };
        let mut response = Answer::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }

    /// The answer of a function that may begin with status and headers; `failed` if it does not do so as
    /// it says.
    pub(super) async fn integrate(self, failed: Response<Bytes>) -> Answer {
        let named = self.begun.headers.get(CONTENT_TYPE);
        if named.is_none_or(|it| it.as_bytes() != INTEGRATION.as_bytes()) {
            return self.pass();
        }
        let Self { mut begun, completed, hang_up } = self;
        let is_cut = begun.is_cut;
        let read = prelude(&mut begun.pieces).await;
        let answer = read.and_then(|(head, rest)| Some((urls::integrated(&head)?, rest)));
        let Some((answer, rest)) = answer else {
            // The function goes on to its end, for which that of this answer waits.
            let end = watch(completed, is_cut, hang_up, |_| Ok(None));
            return failed.map(|body| AnswerBody::Passing(Passing::of_last(body, end)));
        };
        let end = watch(completed, is_cut, hang_up, as_it_is);
        answer.map(|_| AnswerBody::Passing(Passing::new(begun.pieces, None, end).after(rest)))
    }

    /// The answer as events.
    fn into_events(self, tail: bool) -> AnswerBody {
        let Self { begun, completed, hang_up } = self;
        let end = watch(completed, begun.is_cut, hang_up, move |ended| {
            let ended = ended.ok_or_else(broken_off)?;
            Ok(Some(complete(ended.error.as_deref(), &ended.completion, tail)))
        });
        AnswerBody::Passing(Passing::new(begun.pieces, None, end).framed(chunk))
    }
}

/// What became of an answer that had begun.
struct Ended {
    completion: Completion,
    /// The client has all of the answer.
    is_whole: bool,
    /// With what the function failed, if it did.
    error: Option<Bytes>,
}

impl Ended {
    /// None if what has ended is not what has begun, or is not in the log.
    fn of(completion: Completion) -> Option<Self> {
        let (is_whole, error) = match &completion.disposition {
            Disposition::Ran(Outcome::Passed) => (true, None),
            Disposition::Ran(Outcome::Answered(answer)) if answer.body.is_none() => {
                let error = answer.is_failure().then(|| {
                    let message = format!("the server answered with HTTP status {}", answer.status);
                    json!({"errorType": "Unhandled", "errorMessage": message}).to_string().into()
                });
                (true, error)
            }
            disposition => {
                let request_id = completion.row().request_id.clone().unwrap_or_default();
                match invoke::payload(disposition, completion.row(), &request_id) {
                    Ok((error, true)) => (false, Some(error)),
                    Ok((_, false)) | Err(_) => return None,
                }
            }
        };
        Some(Self { completion, is_whole, error })
    }
}

/// Whether an answer ends as it should, without more bytes.
fn as_it_is(ended: Option<Ended>) -> io::Result<Option<Bytes>> {
    if ended.is_some_and(|ended| ended.is_whole) { Ok(None) } else { Err(broken_off()) }
}

fn broken_off() -> io::Error {
    io::Error::other("the answer was broken off")
}

/// Waits for the end of an answer that has begun, with what `close` makes of it, and for its client.
fn watch(
    completed: Running,
    is_cut: Arc<AtomicBool>,
    hang_up: Option<HangUp>,
    close: impl FnOnce(Option<Ended>) -> io::Result<Option<Bytes>> + Send + 'static,
) -> End {
    let (sender, receiver) = oneshot::channel();
    let (unread, read) = oneshot::channel::<()>();
    tokio::spawn(async move {
        let ended = completed.await.ok().and_then(Ended::of);
        let end = if is_cut.load(Ordering::Acquire) { Err(broken_off()) } else { close(ended) };
        let limit = if end.is_ok() { REST_TIMEOUT } else { CUT_TIMEOUT };
        // Whoever asked may have gone away.
        let _ = sender.send(end);
        if timeout(limit, read).await.is_err()
            && let Some(hang_up) = hang_up
        {
            hang_up.ask();
        }
    });
    Box::pin(async move {
        let _unread = unread;
        receiver.await.unwrap_or_else(|_| Err(broken_off()))
    })
}

/// What comes before the eight zero bytes of a streamed answer, and what has come after them.
async fn prelude(pieces: &mut mpsc::Receiver<Bytes>) -> Option<(Bytes, Bytes)> {
    let mut read = BytesMut::new();
    while let Some(piece) = pieces.recv().await {
        let seen = read.len().saturating_sub(PRELUDE_END.len() - 1);
        read.extend_from_slice(&piece);
        let mut windows = read[seen..].windows(PRELUDE_END.len());
        if let Some(end) = windows.position(|bytes| bytes == PRELUDE_END) {
            let mut rest = read.freeze();
            let head = rest.split_to(seen + end);
            return Some((head, rest.slice(PRELUDE_END.len()..)));
        }
        if read.len() > MAX_PRELUDE_BYTES {
            return None;
        }
    }
    None
}

/// Answers InvokeWithResponseStream.
pub(super) async fn answer(
    api: &Arc<Api>,
    reference: &str,
    head: &Parts,
    body: Bytes,
) -> Result<Answer, ApiError> {
    let mut call = invoke::read(api, reference, head, body, MAX_PAYLOAD_BYTES).await?;
    match invoke::header(head, "x-amz-invocation-type").unwrap_or("RequestResponse") {
        "RequestResponse" => {}
        "DryRun" => return Ok(empty_answer(StatusCode::NO_CONTENT)),
        other => {
            return Err(ApiError::invalid(format!(
                "X-Amz-Invocation-Type must be RequestResponse or DryRun, not {other:?}"
            )));
        }
    }
    let (request_id, function) = (call.names.request_id.clone(), call.target.version.clone());
    let tail = invoke::wants_tail(head);
    let (hint, note) = hints::read(api, &head.headers, call.client_context.as_deref());
    call.hint = hint;
    let mut response = match begin(api, call).await? {
        Beginning::Begun(stream) => {
            let mut response = Answer::new(stream.with_head(head).into_events(tail));
            name(response.headers_mut(), &request_id, &function);
            response
        }
        Beginning::Whole(completion) => {
            let row = completion.row();
            let events = match invoke::payload(&completion.disposition, row, &request_id) {
                Ok((payload, false)) => {
                    let mut events = BytesMut::new();
                    if !payload.is_empty() {
                        events.extend_from_slice(&chunk(payload));
                    }
                    events.extend_from_slice(&complete(None, &completion, tail));
                    Ok(events.freeze())
                }
                Ok((error, true)) => Ok(complete(Some(&error), &completion, tail)),
                Err(error) => Err(error),
            };
            let mut response = match events {
                Ok(events) => Answer::new(events.into()),
                Err(error) => error.answer(),
            };
            invoke::describe(response.headers_mut(), row, &function);
            response
        }
    };
    note.put(response.headers_mut()).await;
    if response.status() == StatusCode::OK {
        let events = HeaderValue::from_static("application/vnd.amazon.eventstream");
        response.headers_mut().insert(CONTENT_TYPE, events);
    }
    Ok(response)
}

/// What is known of an invocation when its answer begins.
pub(super) fn name(headers: &mut HeaderMap, request_id: &str, function: &Function) {
    invoke::put(headers, "x-amzn-requestid", request_id);
    invoke::put(headers, "x-amz-executed-version", &function.version_name());
}

/// A piece of the answer as an event.
fn chunk(piece: Bytes) -> Bytes {
    event("PayloadChunk", "application/octet-stream", &piece)
}

/// The last event: with what the function failed, if it did, and the end of its output if that was asked
/// for.
fn complete(error: Option<&[u8]>, completion: &Completion, tail: bool) -> Bytes {
    let mut said = Map::new();
    if let Some(payload) = error {
        let details = &payload[..payload.len().min(MAX_DETAILS_BYTES)];
        said.insert(
            "ErrorCode".into(),
            json!(Failure::read(payload).kind().unwrap_or("Unhandled")),
        );
        said.insert("ErrorDetails".into(), json!(String::from_utf8_lossy(details)));
    }
    if tail {
        said.insert("LogResult".into(), json!(STANDARD.encode(&completion.log_tail)));
    }
    event("InvokeComplete", "application/json", Value::Object(said).to_string().as_bytes())
}

/// A message of an event stream: lengths, their checksum, headers, payload, checksum, as the Smithy
/// specification's "Amazon Event Stream" has it.
fn event(kind: &str, content_type: &str, payload: &[u8]) -> Bytes {
    /// A header's value is a text.
    const TEXT: u8 = 7;
    let mut headers = BytesMut::new();
    let named =
        [(":event-type", kind), (":content-type", content_type), (":message-type", "event")];
    for (name, value) in named {
        headers.put_u8(name.len() as u8);
        headers.put_slice(name.as_bytes());
        headers.put_u8(TEXT);
        headers.put_u16(value.len() as u16);
        headers.put_slice(value.as_bytes());
    }
    let total = 4 + 4 + 4 + headers.len() + payload.len() + 4;
    let mut message = BytesMut::with_capacity(total);
    message.put_u32(total as u32);
    message.put_u32(headers.len() as u32);
    message.put_u32(crc32fast::hash(&message));
    message.put_slice(&headers);
    message.put_slice(payload);
    message.put_u32(crc32fast::hash(&message));
    message.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_form_of_the_specification() {
        let bytes = event("PayloadChunk", "application/octet-stream", b"abc");
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(number(0) as usize, bytes.len());
        assert_eq!(number(8), crc32fast::hash(&bytes[..8]));
        assert_eq!(number(bytes.len() - 4), crc32fast::hash(&bytes[..bytes.len() - 4]));
        let headers = 12 + number(4) as usize;
        assert_eq!(&bytes[headers..bytes.len() - 4], b"abc");
        assert_eq!(&bytes[12..27], b"\x0b:event-type\x07\x00\x0c");
    }

    #[tokio::test]
    async fn an_answer_of_which_a_part_was_thrown_away_is_broken_off() {
        for is_cut in [false, true] {
            let ended = Box::pin(async { Err(ApiError::unavailable("of no matter")) });
            let end = watch(ended, Arc::new(AtomicBool::new(is_cut)), None, |_| Ok(None));
            assert_eq!(end.await.is_err(), is_cut);
        }
        let (passage, begun) = Passage::new();
        let _pieces = passage.begin(StatusCode::OK, HeaderMap::new(), None).unwrap();
        let begun = begun.await.unwrap();
        assert!(!begun.is_cut.load(Ordering::Acquire));
        passage.cut();
        assert!(begun.is_cut.load(Ordering::Acquire));
    }

    #[tokio::test]
    async fn a_prelude_ends_wherever_the_pieces_do() {
        let whole = [br#"{"statusCode":201}"#, &[0; 8][..], b"body"].concat();
        for cut in 0..whole.len() {
            let (sender, mut pieces) = mpsc::channel(2);
            for piece in [&whole[..cut], &whole[cut..]] {
                sender.send(Bytes::copy_from_slice(piece)).await.unwrap();
            }
            drop(sender);
            let (head, mut rest) = prelude(&mut pieces).await.unwrap();
            assert_eq!(&head[..], br#"{"statusCode":201}"#, "{cut}");
            if let Some(piece) = pieces.recv().await {
                rest = [rest, piece].concat().into();
            }
            assert_eq!(rest, "body");
        }
        let (sender, mut pieces) = mpsc::channel(2);
        sender.send(vec![b' '; MAX_PRELUDE_BYTES + 1].into()).await.unwrap();
        assert!(prelude(&mut pieces).await.is_none());
    }
}
