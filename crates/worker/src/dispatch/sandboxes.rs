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
use crate::instance::{self, Architecture, InstanceSpec, Reply, Request};
use crate::meterlog::{LogError, MeterLog, Recorded};

/// What a function runs as.
#[derive(Clone)]
pub(crate) enum Running {
    /// A sandbox of its own.
    Sandbox(instance::Instance),
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
            result: started.result.map(Running::Sandbox),
            phases: started.phases,
            restored: started.restored,
            initialization_ns: started.initialization_ns,
            log_tail: started.log_tail,
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

/// What only a process of a function's own can do: code is nothing between requests.
fn only_processes() -> io::Error {
    io::ErrorKind::Unsupported.into()
}

impl RunningInstance for Running {
    fn is_server(&self) -> bool {
        match self {
            Self::Sandbox(instance) => instance.is_server(),
            Self::Code(_) => true,
            Self::Remote(instance) => instance.is_server(),
        }
    }

    async fn invoke(&self, request: Request) -> Reply {
        match self {
            Self::Sandbox(instance) => instance.invoke(request).await,
            Self::Code(code) => code.invoke(request).await,
            Self::Remote(instance) => instance.invoke(request).await,
        }
    }

    async fn freeze(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(instance) => instance.freeze().await,
            Self::Code(_) => Err(only_processes()),
            Self::Remote(instance) => instance.order("freeze").await,
        }
    }

    async fn thaw(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(instance) => instance.thaw().await,
            Self::Code(_) => Err(only_processes()),
            Self::Remote(instance) => instance.order("thaw").await,
        }
    }

    async fn scale_down(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(instance) => instance.scale_down(),
            Self::Code(_) => Err(only_processes()),
            Self::Remote(instance) => instance.order("scale-down").await,
        }
    }

    async fn scale_up(&self) -> io::Result<()> {
        match self {
            Self::Sandbox(instance) => instance.scale_up(),
            Self::Code(_) => Err(only_processes()),
            Self::Remote(instance) => instance.order("scale-up").await,
        }
    }

    fn set_cpu(&self, assignment: CpuAssignment) -> io::Result<()> {
        match self {
            Self::Sandbox(instance) => instance.set_cpu(&assignment),
            Self::Code(_) => Err(only_processes()),
            Self::Remote(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn idle_cpu(&self) -> Option<i64> {
        match self {
            Self::Sandbox(instance) => instance.idle_cpu(),
            // The host's own time is no function's.
            Self::Code(_) => None,
            Self::Remote(instance) => instance.idle_cpu(),
        }
    }

    async fn retire(&self, grace: Duration) {
        match self {
            Self::Sandbox(instance) => instance.retire(grace).await,
            Self::Code(code) => code.stop().await,
            Self::Remote(instance) => instance.stop(grace, true).await,
        }
    }

    async fn stop(&self, grace: Duration) {
        match self {
            Self::Sandbox(instance) => instance.stop(grace).await,
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
            Self::Sandbox(instance) => drop(instance.exited().await),
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
