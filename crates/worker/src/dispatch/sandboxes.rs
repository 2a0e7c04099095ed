//! Sandboxes and the log on disk, below the seam.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uncia_policy::CpuAssignment;
use uncia_record::{Instance as InstanceRow, Invocation};

use super::host::{InstanceHost, Log, RunningInstance, Started};
use crate::instance::{self, InstanceSpec, Reply, Request};
use crate::meterlog::{LogError, MeterLog, Recorded};

impl InstanceHost for Arc<instance::Host> {
    type Instance = instance::Instance;

    async fn start(&self, spec: InstanceSpec) -> Started<Self::Instance> {
        let started = instance::Host::start(self, spec).await;
        Started {
            result: started.result,
            phases: started.phases,
            restored: started.restored,
            initialization_ns: started.initialization_ns,
            log_tail: started.log_tail,
        }
    }

    fn expect(&self, spec: InstanceSpec) {
        let host = self.clone();
        tokio::spawn(async move { instance::Host::expect(&host, &spec).await });
    }

    fn forget(&self, function: &str) {
        instance::Host::forget(self, function);
    }
}

impl RunningInstance for instance::Instance {
    fn is_server(&self) -> bool {
        Self::is_server(self)
    }

    async fn invoke(&self, request: Request) -> Reply {
        Self::invoke(self, request).await
    }

    async fn freeze(&self) -> io::Result<()> {
        Self::freeze(self).await
    }

    async fn thaw(&self) -> io::Result<()> {
        Self::thaw(self).await
    }

    fn scale_down(&self) -> io::Result<()> {
        Self::scale_down(self)
    }

    fn scale_up(&self) -> io::Result<()> {
        Self::scale_up(self)
    }

    fn set_cpu(&self, _assignment: CpuAssignment) -> io::Result<()> {
        // CPU classes and pinning are for platforms that reserve CPUs; this one gives quotas.
        Err(io::Error::new(io::ErrorKind::Unsupported, "this host cannot assign CPUs"))
    }

    fn idle_cpu(&self) -> Option<i64> {
        Self::idle_cpu(self)
    }

    async fn retire(&self, grace: Duration) {
        Self::retire(self, grace).await;
    }

    async fn stop(&self, grace: Duration) {
        Self::stop(self, grace).await;
    }

    async fn exited(&self) {
        Self::exited(self).await;
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
