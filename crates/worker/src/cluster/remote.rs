//! An instance on a worker that has joined.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout, timeout_at};
use uncia_clock::Moment;

use super::frames::{self, Beginning, Frames};
use super::members::{AskError, Member};
use super::websockets::{self, ToWorker};
use super::wire::{self, ServeAnswer, ServeRequest, lost};
use crate::instance::{HttpAnswer, Outcome, Passage, Reply, Request};
use crate::passage::ClientGone;

/// The largest body of a request to an HTTP server that is passed on: Cloud Run's limit without HTTP/2.
const MAX_BODY_BYTES: usize = 32 << 20;
/// What a client has beyond the request's time to take what was sent of the answer.
const PASSING: Duration = Duration::from_secs(1);
/// How a request of a server ends without its answer.
const CLOSED: &str = "the client closed the connection";
const CUT_OFF: &str = "the client took nothing of its answer while thousands of others on its worker took nothing \
                       of theirs, and was cut off";
/// No idle CPU time is known.
const UNKNOWN: i64 = i64::MIN;

/// An instance on a worker that has joined. Clones are the same.
#[derive(Clone)]
pub(crate) struct RemoteInstance {
    id: Arc<str>,
    member: Arc<Member>,
    is_server: bool,
    cgroup: Option<Arc<str>>,
    idle_cpu: Arc<AtomicI64>,
    /// Turns true when it has ended, or its worker is gone.
    ended: watch::Receiver<bool>,
}

impl RemoteInstance {
    /// An instance that the worker has started.
    pub(super) fn new(
        id: &str,
        member: Arc<Member>,
        is_server: bool,
        cgroup: Option<String>,
    ) -> Self {
        let (sender, ended) = watch::channel(false);
        let idle_cpu = Arc::new(AtomicI64::new(UNKNOWN));
        let cgroup = cgroup.map(Into::into);
        let instance = Self { id: id.into(), member, is_server, cgroup, idle_cpu, ended };
        let watched = instance.clone();
        tokio::spawn(async move {
            // However this ends, the instance has.
            let _ = watched.order("exited").await;
            let _ = sender.send(true);
        });
        instance
    }

    pub(crate) fn is_server(&self) -> bool {
        self.is_server
    }

    /// Its control group there.
    pub(crate) fn cgroup(&self) -> Option<String> {
        self.cgroup.as_deref().map(str::to_owned)
    }

    /// Why it has ended, if by no order.
    pub(crate) fn end_reason(&self) -> &'static str {
        if self.member.is_gone() { "worker_gone" } else { "exit" }
    }

    pub(crate) fn idle_cpu(&self) -> Option<i64> {
        Some(self.idle_cpu.load(Ordering::Relaxed)).filter(|ns| *ns != UNKNOWN)
    }

    /// Has the instance serve a request, whose body goes as a whole.
    pub(crate) async fn invoke(&self, request: Request) -> Reply {
        if self.member.is_gone() {
            return lost(Moment::now(), false, self.member.farewell());
        }
        if *self.ended.borrow() {
            // Before its body is read, which is there only once.
            return missing(Moment::now());
        }
        let payload = match timeout(request.timeout, whole(&request)).await {
            Ok(Ok(payload)) => payload,
            Ok(Err(outcome)) => return refused(outcome),
            // As of a function that has no time left.
            Err(_) => return refused(Outcome::GivenUp),
        };
        let sent = Moment::now();
        let serve = ServeRequest::of(&request, payload);
        match self.serve(&serve, request.passage.as_deref(), request.timeout).await {
            Ok(Err(sentence)) => {
                let outcome = Outcome::ClientGone(sentence.into());
                Reply { outcome, ..lost(sent, true, String::new()) }
            }
            Ok(Ok(answer)) => {
                self.note_idle_cpu(answer.idle_cpu);
                answer.translated(sent, Moment::now())
            }
            // It had ended before: no code of the function has seen the request.
            Err(AskError::Missing) => missing(sent),
            Err(_) if self.member.is_gone_soon().await => lost(sent, true, self.member.farewell()),
            Err(AskError::Busy(error) | AskError::Failed(error)) => {
                // Nobody would know of it any more.
                self.stop(Duration::ZERO, false).await;
                let sentence = format!("the worker {} failed: {error}", self.member.name());
                lost(sent, true, sentence)
            }
        }
    }

    /// Passes on what the instance answers; a sentence if its client has gone, and it is a server: that ends
    /// with its client, where a function goes on.
    async fn serve(
        &self,
        request: &ServeRequest,
        passage: Option<&Passage>,
        limit: Duration,
    ) -> Result<Result<ServeAnswer, &'static str>, AskError> {
        let body = wire::encode(request).map_err(AskError::Failed)?;
        let is_websocket = passage.is_some_and(Passage::is_websocket);
        let (what, body, to_worker) = if is_websocket {
            let (pieces, sent) = mpsc::channel(websockets::PIECES);
            let (whole, is_whole) = oneshot::channel();
            let to_worker = ToWorker { request_id: &request.request_id, pieces, whole };
            ("websocket", frames::open(body, sent, is_whole), Some(to_worker))
        } else {
            ("serve", body.into(), None)
        };
        let path = format!("/instances/{}/{what}", self.id);
        let mut frames = Frames::new(self.member.ask_with(&path, body).await?);
        let beginning: Option<Beginning> =
            self.member.unless_gone(frames.read()).await?.map_err(AskError::Failed)?;
        // By then the worker has ended it, and waits only for a client that does not read.
        let deadline = Instant::now() + limit + PASSING;
        let is_switched = |it: &Beginning| it.answer.status == StatusCode::SWITCHING_PROTOCOLS;
        let beginning = match (beginning, passage, to_worker) {
            (Some(it), Some(passage), Some(to_worker)) if is_switched(&it) => {
                let member = &self.member;
                let passed =
                    websockets::pass(member, &mut frames, it, passage, to_worker, deadline);
                return Ok(passed.await?.ok_or(CLOSED));
            }
            (beginning, ..) => beginning,
        };
        // Whoever has all that was announced takes no more, and has not gone.
        let mut left = beginning.as_ref().and_then(|it| it.announced).unwrap_or(u64::MAX);
        let mut client = None;
        if let Some((passage, it)) = passage.zip(beginning) {
            match passage.begin(it.answer.status, it.answer.headers, it.announced) {
                Ok(pieces) => client = Some((passage, pieces)),
                Err(ClientGone) if self.is_server => return Ok(Err(CLOSED)),
                Err(ClientGone) => {}
            }
        }
        loop {
            let next = self.member.unless_gone(frames.next());
            let piece = match &client {
                // It need not wait for a piece that may never come.
                Some((_, pieces)) => tokio::select! {
                    piece = next => piece?,
                    () = pieces.closed(), if self.is_server && left > 0 => {
                        return Ok(Err(CLOSED));
                    }
                },
                None => next.await?,
            };
            let piece = piece.map_err(AskError::Failed)?;
            if piece.is_empty() {
                drop(client);
                let answer = self.member.unless_gone(frames.read()).await?;
                return answer.map(Ok).map_err(AskError::Failed);
            }
            let Some((passage, pieces)) = &client else { continue };
            let bytes = piece.len();
            left = left.saturating_sub(bytes as u64);
            let taken = timeout_at(deadline, pieces.send(piece));
            match self.member.while_behind(taken).await {
                Some(Ok(Ok(()))) => passage.count_sent(bytes),
                Some(Ok(Err(_))) if self.is_server => return Ok(Err(CLOSED)),
                None if self.is_server => return Ok(Err(CUT_OFF)),
                Some(Ok(Err(_))) => client = None,
                Some(Err(_)) | None => {
                    passage.cut();
                    client = None;
                }
            }
        }
    }

    fn note_idle_cpu(&self, idle_cpu: Option<i64>) {
        if let Some(ns) = idle_cpu {
            self.idle_cpu.store(ns, Ordering::Relaxed);
        }
    }

    /// Carries out what the path's last part says.
    pub(crate) async fn order(&self, what: &str) -> io::Result<()> {
        let path = format!("/instances/{}/{what}", self.id);
        let answer = self.member.ask(&path, Bytes::new()).await?;
        // What it used of the CPU up to here, while it served nothing.
        self.note_idle_cpu(wire::decode(answer).await.map_err(io::Error::other)?);
        Ok(())
    }

    /// Resolves once nothing refuses an order as `ResourceBusy`.
    pub(crate) async fn free(&self) {
        if self.order("free").await.is_err() {
            // It has ended, which is told elsewhere.
            std::future::pending::<()>().await;
        }
    }

    /// Ends it within `grace`, in order if it is to `retire`.
    pub(crate) async fn stop(&self, grace: Duration, retire: bool) {
        let what = if retire { "retire" } else { "stop" };
        // Of a worker that is gone nothing is left.
        let _ = self.order(&format!("{what}/{}", grace.as_millis())).await;
    }

    pub(crate) async fn exited(&self) {
        // A sender that is gone has seen the end, too.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

/// The reply to a request for an instance that had ended: another may try.
fn missing(sent: Moment) -> Reply {
    lost(sent, false, "the instance had ended".to_owned())
}

/// The reply to a request that no instance was given.
fn refused(outcome: Outcome) -> Reply {
    let now = Moment::now();
    Reply { outcome, ended: now, ..lost(now, true, String::new()) }
}

/// The payload, with the body of a request that has not been read yet.
async fn whole(request: &Request) -> Result<Bytes, Outcome> {
    let passage = request.passage.as_ref().filter(|passage| passage.has_body());
    let Some(passage) = passage else { return Ok(request.payload.clone()) };
    let refuse = |status, message: &'static str| {
        let body = Some(Bytes::from_static(message.as_bytes()));
        Outcome::Answered(Box::new(HttpAnswer { status, headers: HeaderMap::new(), body }))
    };
    let Some(body) = passage.take_body() else {
        // Another instance would take an empty one for what the client has sent.
        let error = serde_json::json!({
            "errorType": "Server.Unanswered",
            "errorMessage": "the request's body went to an instance that ended",
        });
        return Err(Outcome::FunctionError(error.to_string().into()));
    };
    match http_body_util::Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => {
            let message =
                "the body is larger than the 32 MiB that pass to a worker which has joined";
            Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, message))
        }
        Err(_) => Err(Outcome::ClientGone("the client broke off the request's body".into())),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::Full;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;

    use super::*;

    #[tokio::test]
    async fn a_body_that_another_instance_was_sent_is_not_taken_for_an_empty_one() {
        let (client, server) = tokio::io::duplex(1 << 10);
        let service = service_fn(|request: http::Request<Incoming>| async move {
            let passage = Arc::new(Passage::new().0.with_body(request.into_body()));
            let request = Request { passage: Some(passage), ..Request::default() };
            assert_eq!(whole(&request).await, Ok(Bytes::from_static(b"body")));
            let again = whole(&request).await;
            assert!(matches!(&again, Err(Outcome::FunctionError(_))), "{again:?}");
            Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
        });
        let serving = hyper::server::conn::http1::Builder::new();
        tokio::spawn(serving.serve_connection(TokioIo::new(server), service));
        let connected = hyper::client::conn::http1::handshake(TokioIo::new(client)).await;
        let (mut requests, connection) = connected.unwrap();
        tokio::spawn(connection);
        let body = Full::<Bytes>::from("body");
        let answer = requests.send_request(http::Request::post("/").body(body).unwrap()).await;
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn what_comes_without_a_body_of_its_own_has_its_payload() {
        let passage = Some(Arc::new(Passage::new().0));
        let request = Request { payload: Bytes::from_static(b"{}"), passage, ..Request::default() };
        assert_eq!(whole(&request).await, Ok(Bytes::from_static(b"{}")));
        assert_eq!(whole(&request).await, Ok(Bytes::from_static(b"{}")));
    }
}
