//! The answer to a request: collected while it is short, and passed on as it comes otherwise.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRAILER};
use http::response::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::oneshot::Receiver;
use uncia_code::{Failure, Kind, PREFIX, REPORT};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;

use crate::isolate::Answer;
use crate::usage::{Metered, Usage};

/// An answer whose code has ended before it is longer is sent as a whole.
const COLLECTED_BYTES: usize = 64 * 1024;

/// The most that is taken of a head: what is added to it must pass, too.
const HEAD_BYTES: usize = 32 * 1024;
const HEAD_FIELDS: usize = 64;

/// The end of an invocation, which fails in a sentence.
type Ended = Result<(), Failure>;

/// An invocation that is under way.
pub(crate) struct Running {
    code: Metered<Ended>,
    ended: Option<Ended>,
    usage: Arc<Usage>,
}

impl Running {
    pub(crate) fn new(
        code: impl Future<Output = Ended> + Send + 'static,
        usage: Arc<Usage>,
    ) -> Self {
        Self { code: Metered::new(code, usage.clone()), ended: None, usage }
    }

    /// Lets the code go on; whether it has ended now.
    fn go_on(&mut self, context: &mut Context<'_>) -> bool {
        if self.ended.is_some() {
            return false;
        }
        if let Poll::Ready(ended) = Pin::new(&mut self.code).poll(context) {
            self.ended = Some(ended);
        }
        self.ended.is_some()
    }

    /// Runs the code until its answer is there or begins. One without a body begins with its end.
    pub(crate) async fn answer(
        mut self,
        mut receiver: Receiver<Answer>,
        method: &Method,
    ) -> Response<AnswerBody> {
        let answer = poll_fn(|context| {
            self.go_on(context);
            match Pin::new(&mut receiver).poll(context) {
                Poll::Ready(answer) => Poll::Ready(answer.ok()),
                Poll::Pending if self.ended.is_some() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            }
        });
        let answer = answer.await;
        let (mut parts, body) = match answer {
            Some(Ok(answer)) => answer.into_parts(),
            Some(Err(code)) => {
                let sentence = format!("The code answered with the error {code:?}");
                return self.failed(Failure::new(Kind::NoAnswer, sentence)).await;
            }
            None => {
                let sentence = "The code ended without an answer: it did not call \
                                response-outparam.set";
                return self.failed(Failure::new(Kind::NoAnswer, sentence)).await;
            }
        };
        strip(&mut parts.headers);
        let complaint = complaint(&parts);
        let mut passed = Passed {
            running: self,
            body: Some(body),
            frames: VecDeque::new(),
            bytes: 0,
            is_reported: false,
        };
        let is_whole = if complaint.is_some() || has_no_body(method, parts.status) {
            // Of its body nothing is sent, not even the end.
            poll_fn(|context| passed.discard(context)).await;
            true
        } else {
            poll_fn(|context| Poll::Ready(passed.collect(context))).await
        };
        if is_whole {
            let failure = passed.running.ended.take().and_then(Result::err).or(complaint);
            return match failure {
                Some(failure) => failure_answer(&passed.running.usage, failure),
                None => passed.whole(parts),
            };
        }
        parts.headers.insert(TRAILER, HeaderValue::from_static(REPORT));
        Response::from_parts(parts, AnswerBody::Passed(Box::new(passed)))
    }

    /// Waits for the end of code that gives no answer.
    async fn failed(mut self, failure: Failure) -> Response<AnswerBody> {
        poll_fn(|context| {
            self.go_on(context);
            if self.ended.is_some() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let failure = self.ended.take().and_then(Result::err).unwrap_or(failure);
        failure_answer(&self.usage, failure)
    }
}

/// What is sent in place of an answer.
fn failure_answer(usage: &Usage, failure: Failure) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Whole(Full::new(failure.message.clone().into())));
    *response.status_mut() = match failure.kind {
        Kind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    response.headers_mut().insert(HeaderName::from_static(REPORT), report(usage, Some(failure)));
    response
}

/// Whether an answer has no body, whatever the code writes (RFC 9112, 6.3).
fn has_no_body(method: &Method, status: StatusCode) -> bool {
    method == Method::HEAD || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

/// What is wrong with a head, if it cannot be sent.
fn complaint(head: &Parts) -> Option<Failure> {
    if head.status.is_informational() {
        let sentence = format!(
            "The code answered with the status {}, which ends no request: it must be 200 or above",
            head.status.as_u16()
        );
        return Some(Failure::new(Kind::NoAnswer, sentence));
    }
    let bytes: usize =
        head.headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let fields = head.headers.len();
    (bytes > HEAD_BYTES || fields > HEAD_FIELDS).then(|| {
        let sentence = format!(
            "The code answered with {fields} headers of {bytes} bytes: at most {HEAD_FIELDS} of {HEAD_BYTES} bytes \
             are sent"
        );
        Failure::new(Kind::NoAnswer, sentence)
    })
}

fn report(usage: &Usage, failure: Option<Failure>) -> HeaderValue {
    HeaderValue::from_bytes(&usage.report(failure).into_header())
        .unwrap_or(HeaderValue::from_static("{}"))
}

/// Removes what a function must not see or set.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let own: Vec<_> =
        headers.keys().filter(|it| it.as_str().starts_with(PREFIX)).cloned().collect();
    for name in own {
        headers.remove(name);
    }
}

/// An answer of which the head is known.
pub(crate) struct Passed {
    running: Running,
    /// None after its end.
    body: Option<HyperOutgoingBody>,
    /// What has come of it and is not sent.
    frames: VecDeque<Bytes>,
    bytes: usize,
    is_reported: bool,
}

/// How a body has gone on.
enum Step {
    Piece(Bytes),
    End,
    Waits,
}

impl Passed {
    /// Takes the next piece of the body. What is wrong with it, the code has done.
    fn next(&mut self, context: &mut Context<'_>) -> Step {
        loop {
            let Some(body) = &mut self.body else { return Step::End };
            match Pin::new(body).poll_frame(context) {
                Poll::Pending => return Step::Waits,
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) if piece.is_empty() => {}
                    Ok(piece) => return Step::Piece(piece),
                    // Trailers are of one connection.
                    Err(_) => {}
                },
                Poll::Ready(Some(Err(error))) => {
                    self.body = None;
                    // A trap comes before what follows from it.
                    if !matches!(self.running.ended, Some(Err(_))) {
                        let sentence = format!("The code broke off its answer: {error}");
                        self.running.ended = Some(Err(Failure::new(Kind::NoAnswer, sentence)));
                    }
                }
                Poll::Ready(None) => self.body = None,
            }
        }
    }

    /// Runs the code for as long as nothing is waited for; whether it has ended with a short answer.
    fn collect(&mut self, context: &mut Context<'_>) -> bool {
        loop {
            let mut advanced = self.running.go_on(context);
            while self.bytes <= COLLECTED_BYTES {
                match self.next(context) {
                    Step::Piece(piece) => {
                        self.bytes += piece.len();
                        self.frames.push_back(piece);
                        advanced = true;
                    }
                    Step::End | Step::Waits => break,
                }
            }
            if self.body.is_none() && self.running.ended.is_some() {
                return true;
            }
            if !advanced || self.bytes > COLLECTED_BYTES {
                return false;
            }
        }
    }

    /// Runs the code to its end, and forgets what it sends.
    fn discard(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let has_ended = self.running.go_on(context);
            match self.next(context) {
                Step::Piece(_) => {}
                Step::End if self.running.ended.is_some() => return Poll::Ready(()),
                // What it has sent before its end may be there now.
                Step::Waits if has_ended => {}
                Step::End | Step::Waits => return Poll::Pending,
            }
        }
    }

    /// The whole answer.
    fn whole(mut self, mut parts: Parts) -> Response<AnswerBody> {
        let body = match self.frames.len() {
            0 | 1 => self.frames.pop_front().unwrap_or_default(),
            _ => self.frames.iter().flatten().copied().collect(),
        };
        // Of HEAD, it is what GET's would be.
        if !body.is_empty() {
            parts.headers.remove(CONTENT_LENGTH);
        }
        parts.headers.insert(HeaderName::from_static(REPORT), report(&self.running.usage, None));
        Response::from_parts(parts, AnswerBody::Whole(Full::new(body)))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        loop {
            if let Some(piece) = self.frames.pop_front() {
                return Poll::Ready(Some(Frame::data(piece)));
            }
            let has_ended = self.running.go_on(context);
            match self.next(context) {
                Step::Piece(piece) => return Poll::Ready(Some(Frame::data(piece))),
                Step::End => {}
                // What it has sent before its end may be there now.
                Step::Waits if has_ended => continue,
                Step::Waits => return Poll::Pending,
            }
            let Some(ended) = &self.running.ended else { return Poll::Pending };
            if self.is_reported {
                return Poll::Ready(None);
            }
            self.is_reported = true;
            let report = report(&self.running.usage, ended.as_ref().err().cloned());
            let trailers = [(HeaderName::from_static(REPORT), report)].into_iter().collect();
            return Poll::Ready(Some(Frame::trailers(trailers)));
        }
    }
}

/// The body of an answer.
pub(crate) enum AnswerBody {
    Whole(Full<Bytes>),
    /// Runs the code as it is read: of a client that does not read, no code goes on.
    Passed(Box<Passed>),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(context),
            Self::Passed(passed) => passed.poll(context).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Passed(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Passed(_) => SizeHint::default(),
        }
    }
}
