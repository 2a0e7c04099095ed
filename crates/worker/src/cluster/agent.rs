//! A worker that joins a controller, and starts the instances that it asks for.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use uncia_clock::Moment;
use uncia_policy::WorkerId;

pub use super::uplink::JoinError;

use super::ahead::{Ahead, Next};
use super::frames::{self, Frames};
use super::instances::{ConnectionId, Instances};
use super::packages::Packages;
use super::uplink::{Uplink, token_of};
use super::websockets::Websockets;
use super::wire::{
    self, Introduction, ServeAnswer, ServeRequest, StartAnswer, StartRequest, Stay, TakenRequest,
};
use crate::api::{ApiError, answer_of_invoke};
use crate::config::Config;
use crate::dispatch::{InstanceHost, Running, RunningInstance};
use crate::instance::{
    AnswerBody, ChainService, Host, HostConfig, InstanceSpec, Passage, Request as Invocation,
    Services,
};
use crate::sandbox::allowed_cpus;
use crate::store::{Code, PackageStore, StateLock};

/// From one attempt to join again to the next.
const RETRY: Duration = Duration::from_millis(500);
/// Requests that a controller may have on its way at a time: two for each instance, and some.
const MAX_STREAMS: u32 = 200_000;
/// What a controller may have sent of a body that is not read yet. Each is read as it comes, whatever the instance takes.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// How often a silent controller is asked whether it is there, and how long it may take to say so.
const HEARTBEAT: Duration = Duration::from_secs(5);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which controller a worker joins, and as what.
#[derive(Debug, Clone)]
pub struct JoinSettings {
    /// The controller's address: `http://` on this machine, `https://` elsewhere.
    pub url: String,
    /// By which rows name the worker.
    pub name: String,
    /// The folder for packages and root file systems.
    pub state: PathBuf,
    /// The credentials that let it in, if any are asked for: a file with `uncia_token`.
    pub credentials: Option<PathBuf>,
    /// How the worker behaves; what is about functions, the controller says.
    pub config: Config,
}

/// An instance, with the packages that it uses.
struct Kept {
    running: Running,
    _packages: Vec<Arc<Code>>,
}

impl Kept {
    /// Ends it at once.
    async fn stop(&self) {
        self.running.stop(Duration::ZERO).await;
    }
}

/// Why something that the controller wants is not done.
enum Refusal {
    /// There is no such instance.
    Missing,
    /// The instance does not do it for now: a sentence.
    Busy(String),
    Failed(String),
}

impl Refusal {
    /// As the [controller](super::members) reads it.
    fn answer(self) -> (StatusCode, AnswerBody) {
        let (status, sentence) = match self {
            Self::Missing => (StatusCode::NOT_FOUND, String::new()),
            Self::Busy(sentence) => (StatusCode::CONFLICT, sentence),
            Self::Failed(sentence) => (StatusCode::INTERNAL_SERVER_ERROR, sentence),
        };
        (status, Bytes::from(sentence).into())
    }
}

impl From<String> for Refusal {
    fn from(sentence: String) -> Self {
        Self::Failed(sentence)
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ResourceBusy => Self::Busy(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// A worker that has joined.
pub struct Agent {
    uplink: Uplink,
    about: Introduction,
    host: Arc<Host>,
    services: Services,
    packages: Packages,
    instances: Instances<Kept>,
    websockets: Arc<Websockets>,
    ahead: Ahead,
    /// Whether functions may name their CPUs.
    has_cpusets: bool,
    /// Set where somebody is to go first: whether that was asked for.
    precedence: Option<bool>,
    /// Whether it wants to leave, and whether it may.
    leaves: watch::Sender<bool>,
    may_go: watch::Sender<bool>,
    grace: Duration,
    _lock: StateLock,
}

impl Agent {
    /// Opens the state folder, and joins for the first time.
    ///
    /// # Errors
    /// The folder or the address cannot be used, instances cannot run here, or the controller cannot be
    /// reached or refuses the worker.
    pub async fn start(settings: JoinSettings) -> Result<(Arc<Self>, Joined), JoinError> {
        let token = settings.credentials.as_deref().map(token_of).transpose()?.flatten();
        let uplink = Uplink::new(&settings.url, token.as_deref())?;
        let state = std::path::absolute(&settings.state).unwrap_or(settings.state);
        let config = settings.config;
        let about = Introduction {
            name: settings.name,
            version: wire::engine_version(),
            cpu: counted(config.capacity.cpu),
            memory: counted(config.capacity.memory),
            max_instances: config.max_instances,
        };
        about.check_name().map_err(JoinError::Name)?;
        let lock = StateLock::take(&state)?;
        let host = Host::open(HostConfig {
            state: state.clone(),
            interpreters: config.runtimes.0.clone(),
            runtimes_cache: config.runtimes_cache.clone(),
            chain: chain(uplink.clone()),
            services: config.services.clone(),
            pool: usize::try_from(config.pool).unwrap_or(usize::MAX),
            checkpoint_cache: config.checkpoint_cache_bytes,
            cpusets: config.cpusets,
            shares_cpus: false,
            capacity_memory: config.capacity_memory(),
        })
        .await?;
        if config.precedence {
            host.set_precedence();
        }
        let joined = match uplink.join(&about).await {
            Ok(connection) => Joined(connection),
            Err(error) => {
                host.close().await;
                return Err(error);
            }
        };
        let store = PackageStore::open(&state)?;
        // It has them all from the controller.
        store.sweep(&std::collections::HashSet::new())?;
        store.set_fetching(&config.services, config.code_cache_bytes);
        let packages = Packages::new(store, uplink.clone(), host.clone());
        let agent = Self {
            uplink,
            about,
            host,
            services: config.services.clone(),
            packages,
            instances: Instances::default(),
            websockets: Arc::default(),
            ahead: Ahead::default(),
            has_cpusets: config.cpusets,
            precedence: config.precedence.then_some(config.asks_precedence),
            leaves: watch::Sender::new(false),
            may_go: watch::Sender::new(false),
            grace: config.shutdown_grace(),
            _lock: lock,
        };
        Ok((Arc::new(agent), joined))
    }

    /// What does not hold on this machine, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let capabilities = self.host.capabilities();
        let warnings = capabilities.warnings.iter().cloned().chain(self.host.refusals());
        let precedence = self.precedence.and_then(|asked| self.host.precedence_warning(asked));
        warnings.chain(precedence).collect()
    }

    /// Resolves with a sentence when the worker cannot go on.
    pub async fn failed(&self) -> String {
        self.host.failed().await
    }

    /// Serves the controller, and joins it again when it was gone, until it has left; calls `tell` each time
    /// that it has joined again.
    pub async fn serve(self: &Arc<Self>, joined: Joined, tell: impl Fn() + Send) {
        let mut connection = Some(joined.0);
        let mut complaint = String::new();
        loop {
            if let Some(connection) = connection.take() {
                self.converse(connection).await;
            }
            // What it asked for, nobody asks for now.
            self.stop_all().await;
            // Nor says which versions are gone when it is back.
            for function in self.ahead.forget_all() {
                InstanceHost::forget(&self.host, &function);
            }
            tokio::select! {
                () = becomes_true(&self.leaves) => break,
                () = tokio::time::sleep(RETRY) => {}
            }
            let again = tokio::select! {
                () = becomes_true(&self.leaves) => break,
                again = self.uplink.join(&self.about) => again,
            };
            match again {
                Ok(again) => {
                    tell();
                    complaint.clear();
                    connection = Some(again);
                }
                Err(error) => {
                    // It asks twice a second, perhaps for days.
                    let sentence = error.to_string();
                    if sentence != complaint {
                        tracing::warn!("{sentence}; trying on");
                        complaint = sentence;
                    }
                }
            }
        }
        self.may_go.send_replace(true);
    }

    /// Leaves the controller: nothing new is started here, and what runs may end. Once `hurry` resolves, or
    /// after the grace of the configuration, it is ended. [`Self::serve`] returns then.
    pub async fn leave(&self, hurry: impl Future<Output = ()>) {
        self.leaves.send_replace(true);
        tokio::select! {
            () = becomes_true(&self.may_go) => {}
            () = tokio::time::sleep(self.grace) => {}
            () = hurry => {}
        }
        self.may_go.send_replace(true);
    }

    /// Ends what is left, once [`Self::serve`] has returned.
    pub async fn close(&self) {
        self.host.close().await;
    }

    async fn converse(self: &Arc<Self>, connection: hyper::upgrade::Upgraded) {
        let agent = self.clone();
        let id = self.instances.connection();
        let service = service_fn(move |request| {
            let agent = agent.clone();
            async move { Ok::<_, Infallible>(agent.answer(id, request).await) }
        });
        let connection = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(HEARTBEAT)
            .keep_alive_timeout(HEARTBEAT_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .serve_connection(TokioIo::new(TokioIo::new(connection)), service);
        let mut connection = Box::pin(connection);
        tokio::select! {
            _ = connection.as_mut() => {}
            () = becomes_true(&self.may_go) => {
                // The answer to the controller's farewell is written.
                connection.as_mut().graceful_shutdown();
                let _ = tokio::time::timeout(RETRY, connection).await;
            }
        }
    }

    async fn answer(
        self: Arc<Self>,
        connection: ConnectionId,
        request: Request<Incoming>,
    ) -> Response<AnswerBody> {
        let came = Moment::now();
        let path = request.uri().path().to_owned();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let body = request.into_body();
        let done = match parts.as_slice() {
            ["instances"] => {
                let started = self.start_instance(connection, body, came).await;
                started.map(AnswerBody::from).map_err(Refusal::from)
            }
            ["instances", id, "serve"] => self.invoke(id, body, came).await,
            ["instances", id, "websocket"] => self.invoke_websocket(id, body, came).await,
            ["websockets", "taken"] => {
                self.taken(body).await.map(AnswerBody::from).map_err(Refusal::from)
            }
            ["instances", id, what @ ..] => self.order(id, what).await.map(AnswerBody::from),
            ["forget"] => {
                self.forget(body).await.map(|()| AnswerBody::default()).map_err(Refusal::from)
            }
            ["leave"] => {
                becomes_true(&self.leaves).await;
                Ok(AnswerBody::default())
            }
            ["left"] => {
                self.may_go.send_replace(true);
                Ok(AnswerBody::default())
            }
            _ => Err(format!("a worker knows no {path}").into()),
        };
        let (status, body) = match done {
            Ok(body) => (StatusCode::OK, body),
            Err(refusal) => refusal.answer(),
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response
    }

    async fn start_instance(
        &self,
        connection: ConnectionId,
        body: Incoming,
        came: Moment,
    ) -> Result<Bytes, String> {
        let StartRequest { mut spec, package, layers } = wire::decode(body).await?;
        if let Some(refusal) = self.services.refusal(spec.reach) {
            return Err(refusal);
        }
        if let Some(cpus) = &spec.cpus {
            if !self.has_cpusets {
                return Err(
                    "this worker was not started with cpusets, which the function's cpus need: \
                            uncia serve --join URL --cpusets"
                        .to_owned(),
                );
            }
            if let Some(refusal) = cpus.refusal(&allowed_cpus()) {
                return Err(refusal);
            }
        }
        let began = Moment::now();
        let packages = self.packages.lay(&mut spec, &package, &layers).await?;
        let fetched = ("package".to_owned(), began, Moment::now());
        let id = spec.id.clone();
        let next = InstanceSpec { id: String::new(), ..spec.clone() };
        let forget = |function: &str| InstanceHost::forget(&self.host, function);
        let start = self.ahead.begin(&next.function, forget);
        let started = InstanceHost::start(&self.host, WorkerId(0), spec).await;
        match start.end() {
            // The next start of this function finds ready what can be.
            Next::Expect => InstanceHost::expect(&self.host, next),
            Next::Forget => InstanceHost::forget(&self.host, &next.function),
        }
        let mut phases = vec![fetched];
        phases.extend(started.phases.iter().map(|it| (it.name.to_owned(), it.start, it.end)));
        let mut cgroup = None;
        let error = match started.result {
            Ok(running) => {
                cgroup = running.cgroup();
                let kept = Kept { running, _packages: packages };
                if let Err(late) = self.instances.insert(connection, id, kept) {
                    // Nobody would ever have it end. Not here, where nobody waits for an answer any more.
                    tokio::spawn(async move { late.stop().await });
                    return Err("the connection that it was asked for by has ended".to_owned());
                }
                None
            }
            Err(error) => Some(error),
        };
        wire::encode(&StartAnswer {
            error,
            phases,
            restored: started.restored,
            initialization_ns: started.initialization_ns,
            log_tail: started.log_tail,
            cgroup,
            stay: Stay::since(came),
        })
    }

    async fn invoke(&self, id: &str, body: Incoming, came: Moment) -> Result<AnswerBody, Refusal> {
        let request: ServeRequest = wire::decode(body).await?;
        self.serve_request(id, request, None, came).await
    }

    async fn invoke_websocket(
        &self,
        id: &str,
        body: Incoming,
        came: Moment,
    ) -> Result<AnswerBody, Refusal> {
        let mut frames = Frames::new(body);
        let request: ServeRequest = frames.read().await?;
        self.serve_request(id, request, Some(frames), came).await
    }

    /// `pieces`: what the client of a websocket sends, if it is to be one.
    async fn serve_request(
        &self,
        id: &str,
        request: ServeRequest,
        pieces: Option<Frames>,
        came: Moment,
    ) -> Result<AnswerBody, Refusal> {
        let instance = self.instance(id)?;
        let (passage, mut begun) = Passage::new();
        let (websocket, passage) = match pieces {
            Some(frames) => {
                let (websocket, pipe) = self.websockets.open(&request.request_id, frames);
                (Some(websocket), passage.with_pipe(pipe))
            }
            None => (None, passage),
        };
        let begin = |begun| match websocket {
            Some(websocket) => websocket.pass(begun),
            None => begun,
        };
        let passage = request.streams.then(|| Arc::new(passage));
        let request = Invocation { passage, ..request.into() };
        let mut served = Box::pin(async move {
            let reply = instance.running.invoke(request).await;
            let idle_cpu = instance.running.idle_cpu();
            wire::encode(&ServeAnswer { reply, idle_cpu, stay: Stay::since(came) })
        });
        let body = tokio::select! {
            biased;
            // In a task, since the instance goes on to its end though nobody reads what it sends.
            Ok(begun) = &mut begun => frames::streamed(begin(begun), tokio::spawn(served)),
            answer = &mut served => match begun.try_recv() {
                // It began and ended at once.
                Ok(begun) => frames::streamed(begin(begun), tokio::spawn(std::future::ready(answer))),
                Err(_) => frames::whole(&answer?),
            },
        };
        Ok(body?)
    }

    async fn taken(&self, body: Incoming) -> Result<Bytes, String> {
        let TakenRequest { request_id, known } = wire::decode(body).await?;
        wire::encode(&self.websockets.taken(&request_id, known).await)
    }

    /// Carries out an order; returns the CPU time that the instance has used while it served nothing.
    async fn order(&self, id: &str, what: &[&str]) -> Result<Bytes, Refusal> {
        let instance = self.instance(id)?;
        let running = &instance.running;
        let done = match what {
            ["freeze"] => running.freeze().await,
            ["thaw"] => running.thaw().await,
            ["scale-down"] => running.scale_down().await,
            ["scale-up"] => running.scale_up().await,
            ["free"] => {
                running.free().await;
                Ok(())
            }
            ["exited"] => {
                running.exited().await;
                self.instances.remove(id);
                Ok(())
            }
            [how @ ("stop" | "retire"), grace] => {
                let grace = Duration::from_millis(grace.parse().unwrap_or_default());
                if *how == "retire" {
                    running.retire(grace).await;
                } else {
                    running.stop(grace).await;
                }
                self.instances.remove(id);
                Ok(())
            }
            _ => return Err(format!("a worker cannot {what:?} an instance").into()),
        };
        done?;
        Ok(wire::encode(&running.idle_cpu())?)
    }

    async fn forget(&self, body: Incoming) -> Result<(), String> {
        let name = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        let name = String::from_utf8_lossy(&name);
        self.ahead.forget(&name);
        InstanceHost::forget(&self.host, &name);
        Ok(())
    }

    fn instance(&self, id: &str) -> Result<Arc<Kept>, Refusal> {
        self.instances.get(id).ok_or(Refusal::Missing)
    }

    async fn stop_all(&self) {
        for instance in self.instances.end_connection() {
            instance.stop().await;
        }
    }
}

/// Resolves when the value is true.
async fn becomes_true(value: &watch::Sender<bool>) {
    // The sender is there as long as this.
    let _ = value.subscribe().wait_for(|it| *it).await;
}

/// The connection of a worker that has joined.
pub struct Joined(hyper::upgrade::Upgraded);

impl std::fmt::Debug for Joined {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Joined")
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Agent").field("about", &self.about).finish_non_exhaustive()
    }
}

/// An amount, if it is counted at all.
fn counted(amount: u64) -> Option<u64> {
    (amount != u64::MAX).then_some(amount)
}

/// Passes Invoke requests of instances on to the controller.
fn chain(uplink: Uplink) -> ChainService {
    Arc::new(move |request| {
        let uplink = uplink.clone();
        Box::pin(async move {
            answer_of_invoke(request, async |_, head, body| {
                let mut headers = head.headers;
                for name in [http::header::CONNECTION, http::header::TRANSFER_ENCODING] {
                    headers.remove(name);
                }
                let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
                let failed = |error: String| ApiError::service(error);
                let answer = uplink.send(Method::POST, path, headers, body).await;
                let answer = answer.map_err(|error| failed(error.to_string()))?;
                let (head, body) = answer.into_parts();
                let body = body.collect().await.map_err(|error| failed(error.to_string()))?;
                let mut answer = Response::new(AnswerBody::from(body.to_bytes()));
                *answer.status_mut() = head.status;
                *answer.headers_mut() = without_framing(head.headers);
                Ok(answer)
            })
            .await
        })
    })
}

/// Headers without those of the connection that they came by.
fn without_framing(mut headers: HeaderMap<HeaderValue>) -> HeaderMap<HeaderValue> {
    for name in
        [http::header::CONNECTION, http::header::TRANSFER_ENCODING, http::header::CONTENT_LENGTH]
    {
        headers.remove(name);
    }
    headers
}
