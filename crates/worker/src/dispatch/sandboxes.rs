//! Sandboxes and the log on disk, below the seam.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uncia_clock::Moment;
use uncia_policy::{CpuAssignment, WorkerId};
use uncia_record::{Instance as InstanceRow, Invocation};

use super::host::{InstanceHost, Log, RunningInstance, Started};
use crate::cluster::{Members, RemoteInstance};
use crate::instance::{
    self, Architecture, Held, InstanceSpec, Package, Phase, Reply, Request, StartError,
};
use crate::meterlog::{LogError, MeterLog, Recorded};

/// From what time on waiting for another start to fetch the package is a phase.
const WAITED_NS: i64 = 1_000_000;

/// What a function runs as.
#[derive(Clone)]
pub(crate) enum Running {
    /// A sandbox of its own, and what keeps its package on the disk, if that was fetched.
    Sandbox(instance::Instance, #[expect(dead_code, reason = "it only has to live")] Option<Held>),
    /// Code, in the host of all functions' code.
    Code(instance::LoadedCode),
    /// Either of them, on a worker that has joined.
    Remote(RemoteInstance),
}

/// Where instances run: on this machine, or on the workers that have joined.
#[derive(Clone)]
pub(crate) enum Hosts {
    /// This machine.
    Local(Arc<instance::Host>),
    /// The workers that have joined.
    Members(Arc<Members>),
}

impl InstanceHost for Hosts {
    type Instance = Running;

    async fn start(&self, worker: WorkerId, spec: InstanceSpec) -> Started<Running> {
        match self {
            Self::Local(host) => InstanceHost::start(host, worker, spec).await,
            Self::Members(members) => {
                let started = members.start(worker, spec).await;
                Started {
                    result: started.result.map(Running::Remote),
                    phases: started.phases,
                    restored: started.restored,
                    initialization_ns: started.initialization_ns,
                    log_tail: started.log_tail,
                }
            }
        }
    }

    fn worker_name(&self, worker: WorkerId) -> Option<Arc<str>> {
        match self {
            Self::Local(_) => None,
            Self::Members(members) => members.name(worker),
        }
    }

    fn counts_reservations(&self, worker: WorkerId) -> bool {
        match self {
            // The configuration says it.
            Self::Local(_) => false,
            Self::Members(members) => members.get(worker).is_some_and(|it| it.is_bounded()),
        }
    }

    fn expect(&self, spec: InstanceSpec) {
        match self {
            Self::Local(host) => InstanceHost::expect(host, spec),
            // Each worker does with the first instance that it is asked for.
            Self::Members(_) => {}
        }
    }

    fn forget(&self, function: &str) {
        match self {
            Self::Local(host) => InstanceHost::forget(host, function),
            Self::Members(members) => members.forget(function),
        }
    }
}

impl InstanceHost for Arc<instance::Host> {
    type Instance = Running;

    async fn start(&self, _worker: WorkerId, spec: InstanceSpec) -> Started<Running> {
        let Some(package) = spec.package.clone() else { return self.start_here(spec).await };
        let began = Moment::now();
        let (obtained, mut phases) = obtain(package).await;
        let held = match obtained {
            Ok(held) => held,
            Err(sentence) => {
                tracing::warn!(function = %spec.function, "{sentence}");
                return Started {
                    result: Err(StartError::Package(sentence)),
                    phases,
                    restored: false,
                    initialization_ns: Moment::now().since(began),
                    log_tail: Bytes::new(),
                };
            }
        };
        let obtained = Moment::now().since(began);
        let started = self.start_here(spec).await;
        phases.extend(started.phases);
        Started {
            result: started.result.map(|running| running.holding(held)),
            phases,
            initialization_ns: obtained + started.initialization_ns,
            ..started
        }
    }

    fn expect(&self, spec: InstanceSpec) {
        let host = self.clone();
        tokio::spawn(async move {
            if spec.architecture == Architecture::Code {
                host.expect_code(&spec).await;
            } else {
                instance::Host::expect(&host, &spec).await;
            }
        });
    }

    fn forget(&self, function: &str) {
        instance::Host::forget(self, function);
    }
}

/// Has a package on the disk; returns what keeps it there, and what that consisted of. Of many starts one does the
/// work, and the others' phase of fetching is their waiting for it.
async fn obtain(package: Arc<dyn Package>) -> (Result<Held, String>, Vec<Phase>) {
    let began = Moment::now();
    let turn = package.clone();
    let _turn = turn.turn().lock().await;
    let waited = Moment::now();
    let obtaining = tokio::task::spawn_blocking(move || {
        let mut phases = Vec::new();
        (package.obtain(&mut phases), phases)
    });
    let (held, mut phases) =
        obtaining.await.unwrap_or_else(|error| (Err(error.to_string()), Vec::new()));
    match phases.first_mut() {
        Some(first) => first.start = began,
        None if waited.since(began) > WAITED_NS => {
            phases.push(Phase { name: "fetch", start: began, end: waited });
        }
        None => {}
    }
    (held, phases)
}

/// Starts what needs nothing that is not on this machine.
trait StartHere {
    async fn start_here(&self, spec: InstanceSpec) -> Started<Running>;
}

impl StartHere for Arc<instance::Host> {
    async fn start_here(&self, spec: InstanceSpec) -> Started<Running> {
        if spec.architecture == Architecture::Code {
            let began = Moment::now();
            let started = self.start_code(spec).await;
            return Started {
                result: started.result.map(Running::Code),
                phases: started.phases,
                restored: false,
                initialization_ns: Moment::now().since(began),
                log_tail: Bytes::new(),
            };
        }
        let started = instance::Host::start(self, spec).await;
        Started {
            result: started.result.map(|instance| Running::Sandbox(instance, None)),
            phases: started.phases,
            restored: started.restored,
            initialization_ns: started.initialization_ns,
            log_tail: started.log_tail,
        }
    }
}

impl Running {
    /// The same, which keeps its package on the disk.
    fn holding(self, held: Held) -> Self {
        match self {
            Self::Sandbox(instance, _) => Self::Sandbox(instance, Some(held)),
            other @ (Self::Code(_) | Self::Remote(_)) => other,
        }
    }
}

/// What only a process of a function's own can do: code is nothing between requests.
fn only_processes() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl RunningInstance for Running {
    fn is_server(&self) -> bool {
        match self {
            Self::Sandbox(instance, _) => instance.is_server(),
            Self::Code(_) => true,
            Self::Remote(instance) => instance.is_server(),
        }
    }

    async fn invoke(&self, request: Request) -> Reply {
        match self {
            Self::Sandbox(instance, _) => instance.invoke(request).await,
            Self::Code(code) => code.invoke(request).await,
            Self::Remote(instance) => instance.invoke(request).await,
        }
    }

    async fn freeze(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(instance, _) => instance.freeze().await,
            Self::Code(_) => Err(only_processes()),
            Self::Remote(instance) => instance.order("freeze").await,
        }
    }

    async fn thaw(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(instance, _) => instance.thaw().await,
            Self::Code(_) => Err(only_processes()),
            Self::Remote(instance) => instance.order("thaw").await,
        }
    }

    async fn free(&self) {
        match self {
            Self::Sandbox(instance, _) => instance.free().await,
            // It refuses it for good.
            Self::Code(_) => std::future::pending().await,
            Self::Remote(instance) => instance.free().await,
        }
    }

    async fn scale_down(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(instance, _) => instance.scale_down(),
            Self::Code(_) => Err(only_processes()),
            Self::Remote(instance) => instance.order("scale-down").await,
        }
    }

    async fn scale_up(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(instance, _) => instance.scale_up(),
            Self::Code(_) => Err(only_processes()),
            Self::Remote(instance) => instance.order("scale-up").await,
        }
    }

    fn set_cpu(&self, assignment: CpuAssignment) -> io::Result<()> {
        match self {
            Self::Sandbox(instance, _) => instance.set_cpu(&assignment),
            Self::Code(_) => Err(only_processes()),
            Self::Remote(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn cgroup(&self) -> Option<String> {
        match self {
            Self::Sandbox(instance, _) => instance.cgroup(),
            Self::Code(_) => None,
            Self::Remote(instance) => instance.cgroup(),
        }
    }

    fn idle_cpu(&self) -> Option<i64> {
        match self {
            Self::Sandbox(instance, _) => instance.idle_cpu(),
            // The host's own time is no function's.
            Self::Code(_) => None,
            Self::Remote(instance) => instance.idle_cpu(),
        }
    }

    async fn retire(&self, grace: Duration) {
        match self {
            Self::Sandbox(instance, _) => instance.retire(grace).await,
            Self::Code(code) => code.stop().await,
            Self::Remote(instance) => instance.stop(grace, true).await,
        }
    }

    async fn stop(&self, grace: Duration) {
        match self {
            Self::Sandbox(instance, _) => instance.stop(grace).await,
            Self::Code(code) => code.stop().await,
            Self::Remote(instance) => instance.stop(grace, false).await,
        }
    }

    fn end_reason(&self) -> &'static str {
        match self {
            Self::Remote(instance) => instance.end_reason(),
            _ => "exit",
        }
    }

    async fn exited(&self) {
        match self {
            Self::Sandbox(instance, _) => drop(instance.exited().await),
            Self::Code(code) => code.exited().await,
            Self::Remote(instance) => instance.exited().await,
        }
    }
}

impl Log for MeterLog {
    fn invocation(&self, recorded: Arc<Recorded>) -> Result<(), LogError> {
        Self::invocation(self, recorded)
    }

    fn output(&self, _row: &Invocation, _output: &Bytes) {
        // Is kept apart: see `crate::output`.
    }

    fn instance(&self, row: InstanceRow) {
        Self::instance(self, row);
    }

    fn drop_events(&self, ids: Vec<i64>) {
        Self::drop_events(self, ids);
    }

    async fn payload(self: Arc<Self>, id: i64) -> Result<Option<Bytes>, LogError> {
        let read = tokio::task::spawn_blocking(move || Self::payload(self.as_ref(), id));
        read.await.map_err(|_| LogError::Closed)?
    }
}
