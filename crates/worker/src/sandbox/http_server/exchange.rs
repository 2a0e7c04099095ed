//! One request to an instance's server, and its answer.

use std::error::Error;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use tokio::time::timeout_at;

use super::connection::Connection;
use super::{Server, headers};
use crate::clock::Moment;
use crate::instance::{HttpAnswer, Request};
use crate::sandbox::live::Inner;

/// The largest body of an answer: as that of a runtime, 6 MB and a little.
const MAX_ANSWER: usize = 6 * 1024 * 1024 + 100;

/// Why there is no answer.
pub(super) enum Trouble {
    TimeUp,
    /// The instance has ended.
    Gone,
    /// The body is larger than the platform takes; its size in bytes, as far as it is known.
    TooLarge(u64),
    /// The server has closed a connection in the moment in which the request was sent, as it may.
    Unanswered(String),
    /// What the server answered, or did not, is no HTTP: a sentence.
    NotHttp(String),
}

impl Server {
    /// Sends a request and waits for its answer. `started` is set to the moment from which on the server
    /// may have it.
    pub(super) async fn exchange(
        &self,
        inner: &Inner,
        request: &Request,
        started: &mut Option<Moment>,
        ended: &mut Option<Moment>,
    ) -> Result<HttpAnswer, Trouble> {
        let deadline = tokio::time::Instant::now() + request.timeout;
        let mut retry = true;
        loop {
            let connection = timeout_at(deadline, self.connection(inner)).await;
            let connection = match connection.map_err(|_| Trouble::TimeUp) {
                Ok(connection) => connection.map_err(|error| self.unreachable(&error))?,
                Err(late) => {
                    // It does not accept: the request's time has passed all the same.
                    started.get_or_insert_with(Moment::now);
                    return Err(late);
                }
            };
            let is_used = connection.is_used;
            started.get_or_insert_with(Moment::now);
            let sent = timeout_at(deadline, self.send(connection, request)).await;
            *ended = Some(Moment::now());
            match sent.unwrap_or(Err(Failure::TimeUp)) {
                Ok(answer) => return Ok(answer),
                Err(Failure::TimeUp) => return Err(Trouble::TimeUp),
                Err(Failure::TooLarge(bytes)) => return Err(Trouble::TooLarge(bytes)),
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

    async fn send(&self, connection: Connection, request: &Request) -> Result<HttpAnswer, Failure> {
        let mut sender = connection.sender;
        let outgoing = headers::outgoing(request, self.port);
        let method = outgoing.method().clone();
        let response = match sender.try_send_request(outgoing).await {
            Ok(response) => response,
            Err(mut error) => {
                let unsent = error.take_message().is_some();
                return Err(Failure::of(error.error(), unsent));
            }
        };
        let (head, body) = response.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(Failure::Protocol("it switches protocols unasked".into()));
        }
        let body = collect(body).await?;
        self.keep(sender);
        Ok(HttpAnswer {
            status: head.status,
            headers: headers::of_answer(&head.headers, method == Method::HEAD),
            body,
        })
    }

    fn unreachable(&self, error: &std::io::Error) -> Trouble {
        Trouble::NotHttp(format!("the server no longer listens at port {}: {error}", self.port))
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

async fn collect(body: Incoming) -> Result<Bytes, Failure> {
    if let Some(announced) = body.size_hint().exact()
        && announced > MAX_ANSWER as u64
    {
        return Err(Failure::TooLarge(announced));
    }
    match Limited::new(body, MAX_ANSWER).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(Failure::TooLarge(MAX_ANSWER as u64 + 1))
        }
        Err(error) => Err(Failure::Protocol(format!("its body ends early: {error}"))),
    }
}

/// Whether a request may be sent a second time: nothing changes by it (RFC 9110, 9.2.1).
fn may_repeat(request: &Request) -> bool {
    request.head.as_ref().is_some_and(|head| head.method.is_safe())
}

/// A request with its body.
pub(super) type Outgoing = http::Request<Full<Bytes>>;
