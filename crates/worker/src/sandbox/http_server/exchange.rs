//! One request to an instance's server, and its answer.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::{TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use tokio::time::{Instant, timeout_at};

use super::connection::Connection;
use super::passing::{self, Broken};
use super::{Server, headers};
use crate::clock::Moment;
use crate::instance::{HttpAnswer, MAX_ANSWER, Request};
use crate::passage::{OutgoingBody, Passage};
use crate::reception::FREE_BYTES;
use crate::sandbox::live::Inner;

/// After a websocket was closed, so long may it take until an instance has ended with which it was.
const CLOSED: Duration = Duration::from_millis(20);

/// Why there is no answer.
pub(in crate::sandbox) enum Trouble {
    TimeUp,
    /// The instance has ended.
    Gone,
    /// The body is larger than the platform takes; its size in bytes, as far as it is known.
    TooLarge(u64),
    /// The server has closed a connection in the moment in which the request was sent, as it may.
    Unanswered(String),
    /// The server has broken off its answer: a sentence. It may be ending.
    BrokenOff(String),
    /// The client has closed its connection: a sentence.
    ClientGone(&'static str),
    /// What the server answered, or did not, is no HTTP: a sentence.
    NotHttp(String),
    /// The server takes no connections any more: a sentence.
    Deaf(String),
}

impl Trouble {
    /// What is wrong, for people.
    pub(in crate::sandbox) fn sentence(&self) -> String {
        match self {
            Self::TimeUp => "the time is up".into(),
            Self::Gone => "the instance has ended".into(),
            Self::TooLarge(bytes) => format!("the answer of {bytes} bytes is too large"),
            Self::ClientGone(sentence) => (*sentence).into(),
            Self::Unanswered(sentence)
            | Self::BrokenOff(sentence)
            | Self::NotHttp(sentence)
            | Self::Deaf(sentence) => sentence.clone(),
        }
    }
}

impl Server {
    /// Sends a request and waits for its answer, or passes that on until its end. `started` is set to the
    /// moment from which on the server may have it. `token`: by which the server may say later for which
    /// request it asks something.
    pub(in crate::sandbox) async fn exchange(
        &self,
        inner: &Inner,
        request: &Request,
        token: &str,
        started: &mut Option<Moment>,
        ended: &mut Option<Moment>,
    ) -> Result<HttpAnswer, Trouble> {
        let connected_by = Instant::now() + request.timeout;
        let mut answered_by = None;
        let mut retry = true;
        loop {
            // What can be sent only once is not sent where the server may be closing the connection.
            let is_single = request.passage.as_ref().is_some_and(|it| it.has_body());
            let connection = async {
                if is_single {
                    self.new_connection(inner).await
                } else {
                    self.connection(inner).await
                }
            };
            let connection = match timeout_at(answered_by.unwrap_or(connected_by), connection).await
            {
                Ok(connection) => connection.map_err(|error| self.unreachable(&error))?,
                Err(_) => {
                    // It does not accept: the request's time has passed all the same.
                    started.get_or_insert_with(Moment::now);
                    return Err(Trouble::TimeUp);
                }
            };
            let is_used = connection.is_used;
            let outgoing = headers::outgoing(request, self.port, token);
            // Also of what cannot be sent, or other instances would be asked for it, and this one taken for ended.
            started.get_or_insert_with(Moment::now);
            // The function's time begins with its request, so that one whose time is up has had all of it.
            let deadline = *answered_by.get_or_insert_with(|| Instant::now() + request.timeout);
            let outgoing = outgoing.ok_or_else(|| {
                Trouble::Unanswered("the request's body went to an instance that ended".into())
            })?;
            let sent = timeout_at(deadline, self.send(inner, connection, outgoing, request)).await;
            *ended = Some(Moment::now());
            match sent.unwrap_or(Err(Failure::TimeUp)) {
                // Its end, and that of its server, look the same.
                Ok(answer) if answer.status == StatusCode::SWITCHING_PROTOCOLS => {
                    return if inner.ends_within(CLOSED).await {
                        Err(Trouble::Gone)
                    } else {
                        Ok(answer)
                    };
                }
                Ok(answer) => return Ok(answer),
                Err(Failure::TimeUp) => return Err(Trouble::TimeUp),
                Err(Failure::TooLarge(bytes)) => return Err(Trouble::TooLarge(bytes)),
                // Whatever followed from it.
                Err(_) if request.passage.as_ref().is_some_and(|it| it.is_broken()) => {
                    return Err(Trouble::ClientGone("the client broke off the request's body"));
                }
                Err(Failure::Passing(Broken::ByClient)) => {
                    return Err(Trouble::ClientGone("the client closed the connection"));
                }
                Err(Failure::Passing(Broken::ByServer(how))) => {
                    return Err(Trouble::BrokenOff(format!(
                        "the server broke off its answer: {how}"
                    )));
                }
                // It had not been sent, or may be sent twice, and the connection was an old one.
                Err(Failure::Closed { unsent }) if is_used => {
                    if !(retry && (unsent || may_repeat(request))) {
                        return Err(Trouble::Unanswered(
                            "the server closed the connection as the request came".into(),
                        ));
                    }
                    retry = false;
                    self.close_idle();
                }
                Err(Failure::Closed { .. }) => {
                    return Err(Trouble::NotHttp(format!(
                        "the server at port {} closed the connection without an answer",
                        self.port
                    )));
                }
                Err(Failure::Protocol(error)) => {
                    return Err(Trouble::NotHttp(format!(
                        "the server at port {} answered no valid HTTP: {error}",
                        self.port
                    )));
                }
            }
        }
    }

    async fn send(
        &self,
        inner: &Inner,
        mut connection: Connection,
        outgoing: Outgoing,
        request: &Request,
    ) -> Result<HttpAnswer, Failure> {
        let method = outgoing.method().clone();
        let mut response = match connection.sender.try_send_request(outgoing).await {
            Ok(response) => response,
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                return Err(Failure::of(error.error(), unsent));
            }
        };
        let status = response.status();
        // Such a body has no end that could be told from that of the server.
        let ends_with_connection = response.body().size_hint().exact().is_none()
            && !response.headers().contains_key(TRANSFER_ENCODING);
        let mut passed = headers::of_answer(response.headers(), method == Method::HEAD);
        if status == StatusCode::SWITCHING_PROTOCOLS {
            let passage = may_switch(request, &response)?;
            passing::websocket(inner, passage, &mut response).await.map_err(Failure::Passing)?;
            return Ok(HttpAnswer { status, headers: passed, body: None });
        }
        let body = response.into_body();
        let body = match &request.passage {
            Some(passage) if !is_small(&body) => {
                let headers = passed.clone();
                let trailers = passing::answer(inner, passage, status, headers, body)
                    .await
                    .map_err(Failure::Passing)?;
                if !request.directions.is_empty() {
                    // It is the platform's own host that has sent them, to the platform.
                    passed.extend(trailers);
                }
                None
            }
            _ => {
                let (bytes, trailers) = collect(body).await?;
                if !request.directions.is_empty() {
                    passed.extend(trailers);
                }
                Some(bytes)
            }
        };
        if ends_with_connection && self.has_ended(inner) {
            return Err(Failure::Passing(Broken::ByServer("it ended".into())));
        }
        // A large body may not have been read to its end, and nor may one that comes from the client: the next
        // request would wait behind it.
        let is_passing = request.passage.as_ref().is_some_and(|it| it.has_body());
        if !is_passing && request.payload.len() <= FREE_BYTES {
            self.keep(connection);
        }
        Ok(HttpAnswer { status, headers: passed, body })
    }

    /// Whether the server is gone, or is about to be, as far as that can be seen in this moment: what a process
    /// had open is closed one after the other when it ends.
    fn has_ended(&self, inner: &Inner) -> bool {
        inner.doomed.load(Ordering::SeqCst)
            || inner.meter.out_of_memory()
            || self.listens(inner) == Some(false)
    }

    fn unreachable(&self, error: &std::io::Error) -> Trouble {
        Trouble::Deaf(format!("the server no longer listens at port {}: {error}", self.port))
    }
}

/// What went wrong on a connection.
enum Failure {
    TimeUp,
    Closed {
        /// No byte of the request was sent.
        unsent: bool,
    },
    TooLarge(u64),
    Protocol(String),
    Passing(Broken),
}

impl Failure {
    fn of(error: &hyper::Error, unsent: bool) -> Self {
        let io = error.source().and_then(|it| it.downcast_ref::<std::io::Error>());
        if unsent || error.is_canceled() || error.is_incomplete_message() || io.is_some() {
            return Self::Closed { unsent };
        }
        let cause = error.source().map(|cause| format!(": {cause}"));
        Self::Protocol(format!("{error}{}", cause.unwrap_or_default()))
    }
}

/// Whether a body is waited for, since its end is there with its beginning.
fn is_small(body: &Incoming) -> bool {
    body.size_hint().exact().is_some_and(|bytes| bytes <= FREE_BYTES as u64)
}

/// The passage for a websocket, if the client has asked for one and that is what the server offers.
fn may_switch<'a>(
    request: &'a Request,
    response: &http::Response<Incoming>,
) -> Result<&'a Arc<Passage>, Failure> {
    let asked = request.passage.as_ref().filter(|passage| passage.is_websocket());
    let passage = asked.ok_or_else(|| Failure::Protocol("it switches protocols unasked".into()))?;
    let offered = response.headers().get(UPGRADE);
    if offered.is_some_and(|it| it.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        Ok(passage)
    } else {
        Err(Failure::Protocol("it switches to another protocol than websocket".into()))
    }
}

/// Reads a body to its end, with what comes behind it.
async fn collect(body: Incoming) -> Result<(Bytes, HeaderMap), Failure> {
    if let Some(announced) = body.size_hint().exact()
        && announced > MAX_ANSWER as u64
    {
        return Err(Failure::TooLarge(announced));
    }
    match Limited::new(body, MAX_ANSWER).collect().await {
        Ok(collected) => {
            let trailers = collected.trailers().cloned().unwrap_or_default();
            Ok((collected.to_bytes(), trailers))
        }
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failure::TooLarge(MAX_ANSWER as u64 + 1))
        }
        Err(error) => Err(match error.downcast::<hyper::Error>() {
            Ok(error) => match Broken::of(&error) {
                Some(broken) => Failure::Passing(broken),
                None => Failure::of(&error, false),
            },
            Err(error) => Failure::Protocol(error.to_string()),
        }),
    }
}

/// Whether a request may be sent a second time: nothing changes by it (RFC 9110, 9.2.1).
fn may_repeat(request: &Request) -> bool {
    request.head.as_ref().is_some_and(|head| head.method.is_safe())
}

/// A request with its body.
pub(super) type Outgoing = http::Request<OutgoingBody>;
