//! The workers that have joined, as the controller reaches them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper::rt::{Read, Write};
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, watch};
use uncia_clock::Moment;
use uncia_policy::{Resources, WorkerId};

use super::remote::RemoteInstance;
use super::wire::{self, Introduction, PackageSource, StartAnswer, StartRequest, Translation};
use crate::answer_body::AnswerBody;
use crate::clock;
use crate::dispatch::{Dispatcher, Started};
use crate::function::Function;
use crate::instance::{Architecture, InstanceSpec, StartError};
use crate::store::Registry;

/// How often a silent worker is asked whether it is there, and how long it may take to say so.
const HEARTBEAT: Duration = Duration::from_secs(5);
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
/// What a worker may have sent of an answer that its client does not read.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
/// The same of all answers: the most that HTTP/2 knows, since what is full of it stalls whatever else the worker
/// says.
const CONNECTION_WINDOW_BYTES: u32 = (1 << 31) - 1;
/// Answers of a worker that may wait for their clients at a time. Half of the connection's window is left for all
/// that is read at once.
const MAX_BEHIND: usize = 4096;
/// Within this time a connection that has broken is known to have.
const NOTICE: Duration = Duration::from_millis(500);

/// For so long after a controller's start, workers that were here before may not have joined again.
const GATHERING: Duration = Duration::from_secs(120);

/// A worker that has joined.
pub(crate) struct Member {
    about: Introduction,
    joined_unix_ms: i64,
    requests: SendRequest<AnswerBody>,
    /// Has a permit for each answer that may wait for its client.
    behind: Semaphore,
    gone: watch::Sender<bool>,
    is_draining: watch::Sender<bool>,
}

impl Member {
    pub(crate) fn name(&self) -> &str {
        &self.about.name
    }

    /// Whether it has a bound on what instances reserve.
    pub(crate) fn is_bounded(&self) -> bool {
        self.about.cpu.is_some() || self.about.memory.is_some()
    }

    /// Whether its connection has ended.
    pub(crate) fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    /// What is said of what it served when it went.
    pub(super) fn farewell(&self) -> String {
        format!("the worker {} is gone, and the instance with it", self.name())
    }

    /// Waits for a moment: a connection that breaks is seen by whoever uses it first, and then here.
    pub(super) async fn is_gone_soon(&self) -> bool {
        let mut gone = self.gone.subscribe();
        tokio::time::timeout(NOTICE, gone.wait_for(|gone| *gone)).await.is_ok()
    }

    /// Asks the worker for something, and returns what it answers.
    pub(super) async fn ask(&self, path: &str, body: Bytes) -> Result<Incoming, AskError> {
        self.ask_with(path, body.into()).await
    }

    /// [`Self::ask`] with a body that may be made while it is sent.
    pub(super) async fn ask_with(
        &self,
        path: &str,
        body: AnswerBody,
    ) -> Result<Incoming, AskError> {
        let failed = |error: String| AskError::Failed(error);
        let request = Request::post(format!("http://worker{path}")).body(body);
        let request = request.map_err(|error| failed(error.to_string()))?;
        let mut requests = self.requests.clone();
        let answer = self.unless_gone(requests.send_request(request)).await?;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer.into_body());
        }
        let message = answer.into_body().collect().await;
        let message = message.map_err(|error| failed(error.to_string()))?.to_bytes();
        let message = String::from_utf8_lossy(&message).into_owned();
        Err(match status {
            StatusCode::NOT_FOUND => AskError::Missing,
            StatusCode::CONFLICT => AskError::Busy(message),
            _ => failed(message),
        })
    }

    /// Waits for something that the worker does, while it is there.
    pub(super) async fn unless_gone<T>(
        &self,
        done: impl Future<Output = T>,
    ) -> Result<T, AskError> {
        let mut gone = self.gone.subscribe();
        tokio::select! {
            done = done => Ok(done),
            _ = gone.wait_for(|gone| *gone) => Err(AskError::Failed(self.farewell())),
        }
    }

    /// Waits until a client has taken a piece of its answer, while what follows waits on the connection; None if so
    /// many wait for theirs that one more could stall all that the worker says.
    pub(super) async fn while_behind<T>(&self, taken: impl Future<Output = T>) -> Option<T> {
        let mut taken = pin!(taken);
        tokio::select! {
            biased;
            done = taken.as_mut() => return Some(done),
            // Most clients take it at once.
            () = std::future::ready(()) => {}
        }
        let _place = self.behind.try_acquire().ok()?;
        Some(taken.await)
    }

    /// The same in the forms of [`wire`].
    pub(super) async fn exchange<A: Serialize, B: DeserializeOwned>(
        &self,
        path: &str,
        value: &A,
    ) -> Result<B, AskError> {
        let body = wire::encode(value).map_err(AskError::Failed)?;
        wire::decode(self.ask(path, body).await?).await.map_err(AskError::Failed)
    }
}

/// Why a worker has not done what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// The instance is not there, and so has not been asked.
    #[error("it has no such instance")]
    Missing,
    /// The instance refuses it for now: a sentence.
    #[error("{0}")]
    Busy(String),
    #[error("{0}")]
    Failed(String),
}

impl From<AskError> for io::Error {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Busy(sentence) => Self::new(io::ErrorKind::ResourceBusy, sentence),
            AskError::Missing | AskError::Failed(_) => Self::other(error),
        }
    }
}

/// All that have joined.
pub(crate) struct Members {
    registry: Arc<Registry>,
    by_id: RwLock<HashMap<WorkerId, Arc<Member>>>,
    next: Mutex<u32>,
    seen: Mutex<Seen>,
}

/// What workers that have joined had room for, whether they are there or not.
struct Seen {
    since: Instant,
    /// None of them holds less of all than another.
    largest: Vec<Resources>,
}

impl Seen {
    fn new(since: Instant) -> Self {
        Self { since, largest: Vec::new() }
    }

    fn add(&mut self, capacity: Resources) {
        if !self.largest.iter().any(|it| capacity.fits(*it)) {
            self.largest.retain(|it| !it.fits(capacity));
            self.largest.push(capacity);
        }
    }

    /// Whether one could hold an instance, as far as is known.
    fn could_hold(&self, allocation: Resources, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < GATHERING
            || self.largest.iter().any(|it| allocation.fits(*it))
    }
}

impl Members {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        let seen = Mutex::new(Seen::new(Instant::now()));
        // 0 is the machine of a platform alone.
        Self { registry, by_id: RwLock::default(), next: Mutex::new(1), seen }
    }

    /// The worker, if it is there still.
    pub(crate) fn get(&self, id: WorkerId) -> Option<Arc<Member>> {
        self.read().get(&id).cloned()
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// Whether a worker of this name is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.read().values().any(|member| member.name() == name)
    }

    /// Whether one of them, or of those that were here and may come back, could hold an instance if it were empty;
    /// without any, one may join.
    pub(crate) fn could_hold(&self, allocation: Resources) -> bool {
        let is_anyone_here = self.read().values().any(|it| !*it.is_draining.borrow());
        !is_anyone_here || self.seen().could_hold(allocation, Instant::now())
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What people are told of them, by name.
    pub(crate) fn describe(&self) -> Vec<serde_json::Value> {
        let members = self.read();
        let by_name: BTreeMap<_, _> =
            members.values().map(|it| (it.name().to_owned(), it)).collect();
        by_name
            .values()
            .map(|member| {
                serde_json::json!({
                    "name": member.name(),
                    "state": if *member.is_draining.borrow() { "draining" } else { "joined" },
                    "joined_unix_ms": member.joined_unix_ms,
                    "cpu": member.about.cpu,
                    "memory": member.about.memory,
                    "max_instances": member.about.max_instances,
                })
            })
            .collect()
    }

    /// Follows a worker from when it has joined until it is gone and nothing waits for it.
    pub(crate) async fn follow(
        self: &Arc<Self>,
        about: Introduction,
        connection: Upgraded,
        dispatcher: &Dispatcher,
    ) {
        let connected = connect(TokioIo::new(TokioIo::new(connection))).await;
        let Ok((requests, connection)) = connected else { return };
        let id = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let id = WorkerId(*next);
            *next += 1;
            id
        };
        let (gone, _) = watch::channel(false);
        let (is_draining, _) = watch::channel(false);
        let capacity = about.capacity();
        let joined_unix_ms = clock::unix_ns() / 1_000_000;
        let behind = Semaphore::new(MAX_BEHIND);
        let member = Member { about, joined_unix_ms, requests, behind, gone, is_draining };
        let member = Arc::new(member);
        {
            let mut members = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
            if members.values().any(|it| it.name() == member.name()) {
                // Of two that came at the same time, one is told when it asks again.
                return;
            }
            members.insert(id, member.clone());
        }
        self.seen().add(capacity.resources);
        let name = member.name().to_owned();
        tracing::info!(worker = name, "joined");
        let ended = member.clone();
        let connected = tokio::spawn(async move {
            let _ = connection.await;
            ended.gone.send_replace(true);
        });
        dispatcher.worker_joined(id, capacity);
        // It answers when it wants to leave.
        let wish = member.ask("/leave", Bytes::new()).await;
        if wish.is_ok() {
            member.is_draining.send_replace(true);
            tracing::info!(worker = name, "drains");
        }
        dispatcher.worker_leaves(id).await;
        if wish.is_ok() {
            // So that it need not wait for a connection that nobody closes.
            let _ = member.ask("/left", Bytes::new()).await;
        }
        {
            let mut members = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
            members.remove(&id);
        }
        tracing::info!(worker = name, "left");
        drop(member);
        connected.abort();
    }

    /// Has a worker start an instance.
    pub(crate) async fn start(
        &self,
        worker: WorkerId,
        spec: InstanceSpec,
    ) -> Started<RemoteInstance> {
        let sent = Moment::now();
        let failed = |sentence: String| Started {
            result: Err(StartError::Sandbox(sentence)),
            phases: Vec::new(),
            restored: false,
            initialization_ns: Moment::now().since(sent),
            log_tail: Bytes::new(),
        };
        let Some(member) = self.get(worker) else {
            return failed("the worker that was to start it is gone".to_owned());
        };
        let (id, is_server) = (spec.id.clone(), spec.architecture != Architecture::Polling);
        let request = match self.request(spec) {
            Ok(request) => request,
            Err(sentence) => return failed(sentence),
        };
        let answer: Result<StartAnswer, AskError> = member.exchange("/instances", &request).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return failed(format!("the worker {}: {error}", member.name())),
        };
        let received = Moment::now();
        let there = Translation::new(sent, received, answer.stay);
        let result = match answer.error {
            Some(error) => Err(error),
            None => Ok(RemoteInstance::new(&id, member, is_server, answer.cgroup)),
        };
        Started {
            result,
            phases: wire::phases(&answer.phases, &there),
            restored: answer.restored,
            // With the way there and back, and what it took to bring the package.
            initialization_ns: received.since(sent),
            log_tail: answer.log_tail,
        }
    }

    /// What a worker must know to start an instance of this kind.
    fn request(&self, spec: InstanceSpec) -> Result<StartRequest, String> {
        let function = self.function(&spec.function, &spec.code).ok_or_else(|| {
            "the function was changed before the worker was asked to start it".to_owned()
        })?;
        let layers = match function.layers.opt() {
            None => Vec::new(),
            Some(opt) if opt.parts().is_empty() => vec![opt.sha256().to_owned()],
            Some(opt) => opt.parts().iter().map(|part| part.sha256().to_owned()).collect(),
        };
        Ok(StartRequest { package: PackageSource::of(&function.code), layers, spec })
    }

    /// The function's version of this name, if it has this code still.
    fn function(&self, qualified_name: &str, code: &Path) -> Option<Arc<Function>> {
        let name = qualified_name.split(':').next().unwrap_or(qualified_name);
        let function = self.registry.get(name)?;
        let mut versions = function.versions();
        let version = versions.find(|it| *it.qualified_name == *qualified_name)?;
        (version.code.folder() == code).then(|| version.clone())
    }

    /// Gives up all workers: whatever is waited for on them has ended.
    pub(crate) fn close(&self) {
        for member in self.read().values() {
            member.gone.send_replace(true);
        }
    }

    /// Tells all that nothing is to be kept for a function any more.
    pub(crate) fn forget(&self, function: &str) {
        for member in self.read().values() {
            let member = member.clone();
            let function = Bytes::copy_from_slice(function.as_bytes());
            tokio::spawn(async move { drop(member.ask("/forget", function).await) });
        }
    }

    /// The name of a worker, which its rows carry.
    pub(crate) fn name(&self, id: WorkerId) -> Option<Arc<str>> {
        self.get(id).map(|member| Arc::from(member.name()))
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<WorkerId, Arc<Member>>> {
        // The map is whole after every statement, so a panic elsewhere does not spoil it.
        self.by_id.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks a worker by its connection.
async fn connect<T: Read + Write + Unpin + Send + 'static>(
    io: T,
) -> hyper::Result<(SendRequest<AnswerBody>, Connection<T, AnswerBody, TokioExecutor>)> {
    Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(HEARTBEAT)
        .keep_alive_timeout(HEARTBEAT_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .handshake(io)
        .await
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;

    use http::Response;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use tokio::io::DuplexStream;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// A worker that sends 512 KiB unless asked for `/short`.
    async fn member() -> Member {
        let (controller, worker) = tokio::io::duplex(1 << 20);
        let long = Bytes::from(vec![0; 512 << 10]);
        let service = service_fn(move |request: Request<Incoming>| {
            let is_short = request.uri().path() == "/short";
            let body = if is_short { Bytes::from_static(b"short") } else { long.clone() };
            async move { Ok::<_, Infallible>(Response::new(Full::new(body))) }
        });
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(1000)
            .serve_connection(TokioIo::new(worker), service);
        tokio::spawn(serving);
        let connected = connect::<TokioIo<DuplexStream>>(TokioIo::new(controller)).await;
        let (requests, connection) = connected.unwrap();
        tokio::spawn(connection);
        let about = Introduction {
            name: "a".to_owned(),
            version: String::new(),
            cpu: None,
            memory: None,
            max_instances: 1,
        };
        Member {
            about,
            joined_unix_ms: 0,
            requests,
            behind: Semaphore::new(1),
            gone: watch::Sender::new(false),
            is_draining: watch::Sender::new(false),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hundreds_of_answers_that_nobody_reads_leave_room_for_others() {
        let member = member().await;
        let mut unread = Vec::new();
        for _ in 0..300 {
            unread.push(member.ask("/long", Bytes::new()).await.unwrap());
        }
        // Time stands still while anything is on its way.
        sleep(Duration::from_secs(1)).await;
        let short = async {
            member.ask("/short", Bytes::new()).await.unwrap().collect().await.unwrap().to_bytes()
        };
        assert_eq!(timeout(Duration::from_secs(60), short).await.expect("it passes"), "short");
        // And none of them is lost.
        let long = unread.pop().unwrap().collect().await.unwrap().to_bytes();
        assert_eq!(long.len(), 512 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn only_so_many_answers_wait_for_their_clients() {
        let member = member().await;
        let moment = Duration::from_secs(1);
        {
            let mut first = pin!(member.while_behind(pending::<()>()));
            assert!(timeout(moment, first.as_mut()).await.is_err(), "it waits");
            assert_eq!(member.while_behind(pending::<()>()).await, None);
            assert_eq!(member.while_behind(std::future::ready(7)).await, Some(7), "it need not");
        }
        assert_eq!(member.while_behind(sleep(moment)).await, Some(()));
    }

    #[test]
    fn what_workers_had_room_for_is_remembered() {
        let start = Instant::now();
        let settled = start + GATHERING;
        let of = |cpu, memory| Resources { cpu, memory };
        let mut seen = Seen::new(start);
        seen.add(of(2, 2));
        assert!(seen.could_hold(of(9, 9), start), "a larger one may be on its way");
        assert!(!seen.could_hold(of(3, 2), settled));
        seen.add(of(4, 1));
        seen.add(of(1, 1));
        assert!(seen.could_hold(of(4, 1), settled) && seen.could_hold(of(2, 2), settled));
        assert!(!seen.could_hold(of(4, 2), settled), "nobody had both");
        seen.add(of(4, 2));
        assert_eq!(seen.largest, [of(4, 2)]);
    }
}
