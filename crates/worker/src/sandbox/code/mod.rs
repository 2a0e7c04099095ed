//! Code execution: functions as WebAssembly components, which one process runs for all of them, an
//! instance of the component for each request.
//!
//! That process, `uncia-wasm`, is itself an instance in a sandbox, without any network. It has machine
//! code alone: an instance that nothing else runs in compiles it, once for each component. A cold start
//! is that the host maps a file, and what an invocation used is what the host has measured.
//!
//! | module | concern |
//! |---|---|
//! | [`components`] | compiled components, by their digests |
//! | [`instance`] | a function that the host has loaded |

mod components;
mod instance;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::header::TE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::sync::Mutex as AsyncMutex;
use uncia_code::{FUNCTION, Failure, HOST_BYTES, Load, ORDER, Order, REPORT, Report, from_header};

use super::host::Host;
use super::http_server::Trouble;
use super::live::Instance;
use super::runtimes::Runtime;
use super::start::sandbox;
use crate::clock::Moment;
use crate::ids;
use crate::instance::{
    Architecture, HttpAnswer, InstanceSpec, Phase, Request, StartError, StartFrom,
};

pub use instance::LoadedCode;

use components::Components;

/// Its threads: one for each processor, and those that compile.
const PROCESSES: u64 = 1_024;
/// For starts of the host, on however busy a machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The host of code of a worker, and what it may run.
pub(super) struct CodeHost {
    running: AsyncMutex<Option<Instance>>,
    components: Components,
}

/// How the start of a function's code went.
pub(crate) struct StartedCode {
    pub result: Result<LoadedCode, StartError>,
    pub phases: Vec<Phase>,
}

impl CodeHost {
    pub(super) fn new(state: &std::path::Path) -> Self {
        Self { running: AsyncMutex::default(), components: Components::new(state) }
    }
}

impl Host {
    /// Has the host of code load a function, after what that takes: the host runs, and its component is
    /// compiled.
    pub(crate) async fn start_code(self: &Arc<Self>, spec: InstanceSpec) -> StartedCode {
        let mut phases = Vec::new();
        let result = self.load(&spec, &mut phases).await;
        if let Err(error @ StartError::Sandbox(_)) = &result {
            tracing::warn!(function = %spec.function, "{error}");
        }
        StartedCode { result, phases }
    }

    /// Starts the host, and compiles a function's component, before the function is invoked.
    pub(crate) async fn expect_code(self: &Arc<Self>, spec: &InstanceSpec) {
        // Its first start says what is wrong.
        if self.code_host(spec.runtime).await.is_ok() {
            let _ = self.component(spec).await;
        }
    }

    async fn load(
        self: &Arc<Self>,
        spec: &InstanceSpec,
        phases: &mut Vec<Phase>,
    ) -> Result<LoadedCode, StartError> {
        let began = Moment::now();
        let host = self.code_host(spec.runtime).await?;
        let runs = Moment::now();
        phases.push(Phase { name: "host", start: began, end: runs });
        let file = self.component(spec).await?;
        let compiled = Moment::now();
        phases.push(Phase { name: "compile", start: runs, end: compiled });
        let load = Load {
            function: spec.id.clone(),
            file,
            memory_bytes: spec.memory_bytes,
            cpu_ms: spec.cpu_time.and_then(|time| u64::try_from(time.as_millis()).ok()),
            environment: super::environment::of_code(spec),
        };
        let body = serde_json::to_vec(&load).map_err(sandbox)?;
        let loaded = LoadedCode::new(host.clone(), spec.id.clone());
        if let Err(error) = command(&host, Order::Load, None, body.into(), spec.init_timeout).await
        {
            // The host may have loaded it, and its answer be what failed.
            loaded.stop().await;
            return Err(error);
        }
        phases.push(Phase { name: "load", start: compiled, end: Moment::now() });
        Ok(loaded)
    }

    /// The instance that runs code: the one that does, or a new one.
    async fn code_host(self: &Arc<Self>, runtime: Runtime) -> Result<Instance, StartError> {
        let mut running = self.code.running.lock().await;
        if let Some(host) = running.as_ref()
            && !host.is_ending()
        {
            return Ok(host.clone());
        }
        let host = self.start_host("host", runtime).await?;
        *running = Some(host.clone());
        Ok(host)
    }

    /// Starts an instance of the program that runs and compiles code.
    async fn start_host(
        self: &Arc<Self>,
        name: &str,
        runtime: Runtime,
    ) -> Result<Instance, StartError> {
        let folder = self.code.components.folder().map_err(sandbox)?;
        let started = self.start(host_spec(name, runtime, folder)).await;
        if self.closed.load(Ordering::SeqCst) {
            return Err(StartError::Sandbox("the worker is closing".into()));
        }
        started.result.map_err(|error| {
            let printed = String::from_utf8_lossy(&started.log_tail);
            let printed = printed.trim();
            let colon = if printed.is_empty() { "" } else { ": " };
            sandbox(format!("the host of code does not start: {error}{colon}{printed}"))
        })
    }
}

/// What the host starts with.
fn host_spec(name: &str, runtime: Runtime, components: PathBuf) -> InstanceSpec {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    InstanceSpec {
        architecture: Architecture::Http,
        memory_bytes: HOST_BYTES,
        cpu_micro: processors as u64 * 1_000_000,
        pids_max: PROCESSES,
        start_from: StartFrom::Prepared,
        init_timeout: START_TIMEOUT,
        // Of no function: its share of the CPU is its own. The program finds the components where code is.
        ..InstanceSpec::new(
            format!("code-{name}-{}", ids::instance()),
            "uncia:code",
            runtime,
            "",
            components,
        )
    }
}

/// Headers for the host alone.
fn directions(headers: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = headers.iter().filter_map(|(name, value)| {
        Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?))
    });
    // What is measured comes after an answer that has begun before its end.
    pairs.chain([(TE, HeaderValue::from_static("trailers"))]).collect()
}

/// Sends a request to the host, and waits for its answer.
async fn ask(
    host: &Instance,
    request: &Request,
    started: &mut Option<Moment>,
    ended: &mut Option<Moment>,
) -> Result<HttpAnswer, Trouble> {
    let inner = host.inner();
    let Some(server) = &inner.server else { return Err(Trouble::Gone) };
    tokio::select! {
        biased;
        answer = server.exchange(inner, request, "", started, ended) => answer,
        _ = inner.gone() => Err(Trouble::Gone),
    }
}

/// Has the host do something that answers little.
async fn command(
    host: &Instance,
    order: Order,
    function: Option<&str>,
    body: Bytes,
    timeout: Duration,
) -> Result<(), StartError> {
    let mut headers = vec![(ORDER, order.name())];
    headers.extend(function.map(|function| (FUNCTION, function)));
    let request = Request {
        request_id: ids::uuid(),
        payload: body,
        directions: directions(&headers),
        timeout,
        ..Request::default()
    };
    let answer = ask(host, &request, &mut None, &mut None).await;
    check(answer.map_err(|trouble| sandbox(trouble.sentence()))?)
}

/// Whether the host has done what it was told.
fn check(mut answer: HttpAnswer) -> Result<(), StartError> {
    if answer.status == StatusCode::OK {
        return Ok(());
    }
    match take_report(&mut answer).and_then(|report| report.failure) {
        Some(failure) => Err(start_error(failure)),
        None => Err(sandbox(format!("the host of code answered with status {}", answer.status))),
    }
}

/// What the host says of what it has done.
fn take_report(answer: &mut HttpAnswer) -> Option<Report> {
    from_header(answer.headers.remove(REPORT)?.as_bytes())
}

fn start_error(failure: Failure) -> StartError {
    let error_type = failure.kind.error_type();
    StartError::Init {
        error_type: error_type.into(),
        payload: payload(&failure),
        message: failure.message,
    }
}

/// What Invoke answers where the code has not.
fn payload(failure: &Failure) -> Bytes {
    let (kind, message) = (failure.kind.error_type(), &failure.message);
    serde_json::json!({"errorType": kind, "errorMessage": message}).to_string().into()
}
