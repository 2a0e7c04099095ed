//! One request in an instance of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Incoming;
use tokio::sync::oneshot::Sender;
use uncia_code::{Failure, Kind};
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, ResourceLimiter, Store, Trap, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::p2::bindings::ProxyPre;
use wasmtime_wasi_http::p2::bindings::http::types::{ErrorCode, Scheme};
use wasmtime_wasi_http::p2::body::HyperOutgoingBody;
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::component::one_line;
use crate::hooks::Hooks;
use crate::output::Output;
use crate::room::Room;
use crate::ticker::Ticker;
use crate::usage::Usage;

/// A table may have as many entries as the pool has room for; what limits memory is its own limit.
const TABLE_ELEMENTS: usize = 100_000;

/// Things of the host's that a request's code may hold at a time, such as streams and headers: nobody counts their
/// memory as the function's.
const MAX_RESOURCES: usize = 1_000;

/// The most bytes of a set of headers.
const MAX_FIELDS_BYTES: usize = 16 * 1024;

/// What a component answers.
pub(crate) type Answer = Result<hyper::Response<HyperOutgoingBody>, ErrorCode>;

/// A function that is ready to be invoked.
pub(crate) struct Function {
    pub component: ProxyPre<State>,
    pub memory_bytes: usize,
    pub cpu: Option<Duration>,
    pub environment: Vec<(String, String)>,
}

/// What all requests share.
pub(crate) struct Host {
    pub engine: Engine,
    pub ticker: Ticker,
    pub room: Room,
}

/// What an instance has besides its memory.
pub(crate) struct State {
    table: ResourceTable,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    hooks: Hooks,
    limits: Limits,
}

struct Limits {
    usage: Arc<Usage>,
    memory_bytes: usize,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView { ctx: &mut self.http, table: &mut self.table, hooks: &mut self.hooks }
    }
}

impl ResourceLimiter for Limits {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.usage.grow(desired.saturating_sub(current), self.memory_bytes))
    }

    fn table_growing(
        &mut self,
        _current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS)
    }
}

/// Why running code was interrupted.
#[derive(Debug)]
enum Interrupted {
    Time,
    CpuTime,
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Time => "the time is up",
            Self::CpuTime => "the CPU time is used up",
        })
    }
}

impl std::error::Error for Interrupted {}

/// Has a function serve a request: makes an instance, calls it, and leaves nothing of it. What it
/// answers goes to `answer`, perhaps long before it has ended.
///
/// # Errors
/// Why it failed, if it did.
pub(crate) async fn run(
    host: Arc<Host>,
    function: Arc<Function>,
    request: hyper::Request<Incoming>,
    answer: Sender<Answer>,
    usage: Arc<Usage>,
    timeout: Duration,
) -> Result<(), Failure> {
    let deadline = Instant::now() + timeout;
    let running = serve(host, &function, request, answer, &usage, deadline);
    let ended = tokio::time::timeout_at(deadline.into(), running).await;
    let Ok(ended) = ended else { return Err(time_up(timeout)) };
    ended.map_err(|error| match error.downcast_ref::<Interrupted>() {
        Some(Interrupted::Time) => time_up(timeout),
        Some(Interrupted::CpuTime) => Failure::new(
            Kind::CpuTime,
            format!(
                "The code was stopped after {} ms of CPU time, which is its limit",
                function.cpu.unwrap_or_default().as_millis()
            ),
        ),
        None if usage.was_refused() => Failure::new(
            Kind::Memory,
            format!(
                "The code wanted more memory than its limit of {} MB, and ended: {}",
                function.memory_bytes / (1024 * 1024),
                describe(&error)
            ),
        ),
        None => Failure::new(Kind::Trap, format!("The code ended by itself: {}", describe(&error))),
    })
}

async fn serve(
    host: Arc<Host>,
    function: &Function,
    request: hyper::Request<Incoming>,
    answer: Sender<Answer>,
    usage: &Arc<Usage>,
    deadline: Instant,
) -> wasmtime::Result<()> {
    let _room = host.room.enter(function.memory_bytes).await?;
    let mut wasi = WasiCtx::builder();
    wasi.stdout(Output(usage.clone())).stderr(Output(usage.clone())).envs(&function.environment);
    let mut table = ResourceTable::new();
    table.set_max_capacity(MAX_RESOURCES);
    let mut http = WasiHttpCtx::new();
    http.set_field_size_limit(MAX_FIELDS_BYTES);
    let state = State {
        table,
        wasi: wasi.build(),
        http,
        hooks: Hooks,
        limits: Limits { usage: usage.clone(), memory_bytes: function.memory_bytes },
    };
    let mut store = Store::new(&host.engine, state);
    store.limiter(|state| &mut state.limits);
    store.set_epoch_deadline(1);
    let (own, cpu) = (usage.clone(), function.cpu);
    store.epoch_deadline_callback(move |_| {
        if Instant::now() >= deadline {
            return Err(wasmtime::Error::new(Interrupted::Time));
        }
        if cpu.is_some_and(|limit| own.cpu() >= limit) {
            return Err(wasmtime::Error::new(Interrupted::CpuTime));
        }
        Ok(UpdateDeadline::Yield(1))
    });
    let _ticking = host.ticker.begin();
    let request = store.data_mut().http().new_incoming_request(Scheme::Http, request)?;
    let answer = store.data_mut().http().new_response_outparam(answer)?;
    let instance = function.component.instantiate_async(&mut store).await?;
    instance.wasi_http_incoming_handler().call_handle(&mut store, request, answer).await
}

fn time_up(timeout: Duration) -> Failure {
    Failure::new(
        Kind::Timeout,
        format!("Task timed out after {:.2} seconds", timeout.as_secs_f64()),
    )
}

/// What went wrong, without the places in the code, which have no names that a reader would know.
fn describe(error: &wasmtime::Error) -> String {
    error.downcast_ref::<Trap>().map_or_else(|| one_line(error), ToString::to_string)
}
