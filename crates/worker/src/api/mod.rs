//! The Lambda API, function URLs, and the platform's own log, over HTTP.

mod aliases;
mod body;
mod credentials;
mod error;
mod events;
mod forms;
mod functions;
mod guard;
mod images;
mod invoke;
mod layers;
mod logs;
pub(crate) mod machines;
mod pages;
mod permissions;
mod provisioned;
mod route;
mod s3;
mod server_urls;
mod signatures;
mod streams;
mod tags;
mod urls;
mod versions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Response};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use body::Connected;
pub(crate) use body::HangUp;
pub(crate) use error::{Answer, ApiError};
pub(crate) use route::query_values;

use crate::answer_body::AnswerBody;
use crate::config::Config;
use crate::dispatch::Dispatcher;
use crate::instance::{Caller, Capabilities, Host, Peer, Visit};
use crate::machines::Machines;
use crate::meterlog::MeterLog;
use crate::monitor::Monitor;
use crate::output::OutputLog;
use crate::page::{self, LiveBody, Page};
use crate::store::Registry;
use crate::traces::Traces;

/// A client that has not sent the head of its request by then is not going to.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most that is read of a connection at once, and the longest head of a request.
const BUFFER_BYTES: usize = 64 * 1024;
/// Connections at a time; others wait to be accepted.
const MAX_CONNECTIONS: usize = 4_096;
/// Of the files that the platform may have open, clients have one part in so many; the others are for
/// instances.
const CLIENTS_PART: usize = 2;
/// Answers in progress may take this long to be written when the platform stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The account and region that ARNs carry.
pub(crate) const ARN_PREFIX: &str = "arn:aws:lambda:us-east-1:000000000000:function:";

const LAYER_ARN_PREFIX: &str = "arn:aws:lambda:us-east-1:000000000000:layer:";

/// Everything that a request may need.
pub(crate) struct Api {
    pub config: Config,
    pub address: SocketAddr,
    pub host: Arc<Host>,
    pub registry: Arc<Registry>,
    pub dispatcher: Dispatcher,
    pub log: Arc<MeterLog>,
    pub monitor: Arc<Monitor>,
    pub page: Page,
    pub machines: Arc<Machines>,
    pub traces: Option<Arc<Traces>>,
    pub output: Arc<OutputLog>,
}

impl Api {
    /// Serves connections until `stop` is true. Then it accepts no more, and returns when the answers
    /// in progress are written, or after [`FLUSH_TIMEOUT`].
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        mut stop: watch::Receiver<bool>,
    ) {
        let most = max_connections(uncia_process::descriptors::limit());
        let mut connections = JoinSet::new();
        loop {
            let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
            tokio::select! {
                biased;
                () = stopped => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < most => {
                    match accepted {
                        Ok((stream, _)) => {
                            connections.spawn(self.clone().converse(stream, stop.clone()));
                        }
                        // Out of descriptors, most likely: others are closed in a moment.
                        Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                }
            }
        }
        drop(listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        // Whoever does not read the answer by then is left alone.
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, ended).await;
    }

    /// Answers the requests of one connection.
    async fn converse(self: Arc<Self>, stream: TcpStream, stop: watch::Receiver<bool>) {
        // Answers are small and are waited for.
        let _ = stream.set_nodelay(true);
        match self.host.peer(&stream) {
            Peer::Program => self.talk(stream, None, stop).await,
            Peer::Function(visit) => self.talk(visit.paced(stream), Some(visit), stop).await,
            Peer::Unwelcome => {}
        }
    }

    async fn talk(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        visit: Option<Visit>,
        mut stop: watch::Receiver<bool>,
    ) {
        let visit = visit.map(Arc::new);
        let hang_up = HangUp::default();
        let asked = hang_up.clone();
        // What a connection has become counts as one until it ends.
        let (connected, mut is_over) = mpsc::channel(1);
        let connected = Connected(connected);
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            let (api, visit) = (self.clone(), visit.clone());
            request.extensions_mut().insert(hang_up.clone());
            request.extensions_mut().insert(connected.clone());
            async move {
                if let Some(visit) = &visit {
                    visit.charge_request().await;
                }
                Ok::<_, std::convert::Infallible>(api.reply(request, visit.is_some()).await)
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = Box::pin(connection);
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        // A client that breaks off is its own affair.
        tokio::select! {
            _ = connection.as_mut() => {}
            () = asked.asked() => {}
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.as_mut().await;
            }
        }
        drop(connection);
        while is_over.recv().await.is_some() {}
    }

    /// Answers a request, the one for the page's events as long as its client listens.
    async fn reply(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
        from_function: bool,
    ) -> Response<Either<AnswerBody, LiveBody>> {
        if let Some(refusal) = self.refuse(&request, from_function) {
            return refusal.map(Either::Left);
        }
        if request.method() == http::Method::GET && request.uri().path() == page::LIVE_PATH {
            let (head, _) = request.into_parts();
            return match page::watch(self, &head) {
                Ok(events) => events.map(Either::Right),
                Err(error) => error.answer().map(Either::Left),
            };
        }
        self.answer(request).await.map(Either::Left)
    }

    /// The answer to who may not ask, and to a request of which it is not sure where it ends.
    fn refuse(&self, request: &http::Request<Incoming>, from_function: bool) -> Option<Answer> {
        if from_function && !request.uri().path().starts_with("/url/") {
            let error = ApiError::denied(
                "Functions may not manage the platform; those with the tag uncia:network set to \
                 platform may invoke others, at AWS_ENDPOINT_URL_LAMBDA",
            );
            return Some(error.answer());
        }
        let checked = guard::check(&self.config, request.uri().path(), request.headers());
        if let Err(error) = checked {
            return Some(error.answer());
        }
        let framed = guard::check_framing(request.headers());
        framed.err().map(|error| last(error.answer()))
    }

    async fn answer(self: &Arc<Self>, request: http::Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        if let Some(function) = urls::server(self, head.uri.path()) {
            let passed = server_urls::serve(self, function, head, body).await;
            return passed.unwrap_or_else(|error| error.answer());
        }
        match body::of_client(body, head.uri.path()).await {
            Ok(body) => {
                route::answer(self, &head, body).await.unwrap_or_else(|error| error.answer())
            }
            Err(error) => error.answer(),
        }
    }

    /// Serves the Invoke requests of instances that may make them, and nothing else. What a function
    /// says about itself is not believed: the parent is the invocation that its instance serves.
    pub(crate) async fn answer_instance(
        self: &Arc<Self>,
        request: http::Request<Incoming>,
    ) -> Answer {
        if let Err(error) = guard::check_framing(request.headers()) {
            return last(error.answer());
        }
        let (mut head, body) = request.into_parts();
        let caller = head.extensions.remove::<Caller>();
        head.headers.remove(invoke::INVOCATION_HEADER);
        head.headers.remove(invoke::PARENT_HEADER);
        let parent = caller.as_ref().and_then(|caller| caller.invocation.as_deref());
        if let Some(parent) = parent.and_then(|name| HeaderValue::from_str(name).ok()) {
            head.headers.insert(invoke::PARENT_HEADER, parent);
        }
        let path = head.uri.path();
        let name = path
            .strip_prefix("/2015-03-31/functions/")
            .and_then(|rest| rest.strip_suffix("/invocations"))
            .filter(|_| head.method == http::Method::POST);
        let Some(name) = name else {
            return ApiError::denied(format!(
                "{} {path} is not allowed from within a function; only Invoke is",
                head.method
            ))
            .answer();
        };
        let body = match body::of_function(body, caller.as_ref()).await {
            Ok(body) => body,
            Err(error) => return error.answer(),
        };
        invoke::answer(self, name, &head, body).await.unwrap_or_else(|error| error.answer())
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.host.capabilities()
    }

    /// What does not hold on this machine, and what the log has lost, a sentence each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = self.capabilities().warnings.iter().chain(self.log.warnings());
        let warnings = warnings.cloned().chain(self.host.refusals());
        warnings.chain(self.dispatcher.awake().warning()).collect()
    }
}

/// How many connections are accepted at a time where so many files may be open.
fn max_connections(descriptors: Option<u64>) -> usize {
    let descriptors = descriptors.map_or(usize::MAX, |it| it.try_into().unwrap_or(usize::MAX));
    MAX_CONNECTIONS.min(descriptors / CLIENTS_PART)
}

/// The last answer of its connection.
fn last(mut answer: Answer) -> Answer {
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(http::header::CONNECTION, close);
    answer
}

/// An answer with bytes.
pub(crate) fn bytes_answer(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = http::Response::new(body.into().into());
    answer
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    answer
}
