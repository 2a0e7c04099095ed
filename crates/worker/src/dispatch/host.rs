//! The seam below the dispatcher: whatever starts instances and gives them requests.
//!
//! In production these are sandboxes; in tests a host without processes, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use uncia_policy::{CpuAssignment, WorkerId};
use uncia_record::{Instance as InstanceRow, Invocation};

use crate::instance::{InstanceSpec, Phase, Reply, Request, StartError};
use crate::meterlog::{LogError, Recorded};

/// Starts instances.
pub(crate) trait InstanceHost: Clone + Send + Sync + 'static {
    type Instance: RunningInstance;

    /// Starts an instance on a worker, and waits until it can serve, or has failed and left nothing behind.
    fn start(
        &self,
        worker: WorkerId,
        spec: InstanceSpec,
    ) -> impl Future<Output = Started<Self::Instance>> + Send;

    /// What rows call a worker; None where there is but one.
    fn worker_name(&self, _worker: WorkerId) -> Option<Arc<str>> {
        None
    }

    /// Whether what instances on a worker reserve is counted there.
    fn counts_reservations(&self, _worker: WorkerId) -> bool {
        false
    }

    /// Learns that instances of a function may be started, and makes ahead what their starts take. Does
    /// not wait for it.
    fn expect(&self, spec: InstanceSpec);

    /// Keeps nothing any more for a function alone: it is deleted, or its instances are others now.
    fn forget(&self, function: &str);
}

/// How a start went.
pub(crate) struct Started<I> {
    pub result: Result<I, StartError>,
    pub phases: Vec<Phase>,
    /// Whether a runtime that had been started before was reused.
    pub restored: bool,
    /// The whole start in ns, until the instance could serve or had failed.
    pub initialization_ns: i64,
    /// The last of what was printed meanwhile.
    pub log_tail: Bytes,
}

/// A running instance.
pub(crate) trait RunningInstance: Clone + Send + Sync + 'static {
    /// Whether it serves several requests at a time, and not one after the other.
    fn is_server(&self) -> bool {
        false
    }

    /// Serves a request. On an outcome that the instance does not survive, nothing of it is left
    /// when this returns.
    fn invoke(&self, request: Request) -> impl Future<Output = Reply> + Send;

    /// Stops its processes where they are; `ResourceBusy` if that would disturb what ends by itself.
    fn freeze(&self) -> impl Future<Output = std::io::Result<()>> + Send;

    /// Undoes [`Self::freeze`].
    fn thaw(&self) -> impl Future<Output = std::io::Result<()>> + Send;

    /// Resolves once nothing refuses [`Self::freeze`] or [`Self::scale_down`] as `ResourceBusy`.
    fn free(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Leaves it next to no CPU; `ResourceBusy` as of [`Self::freeze`].
    fn scale_down(&self) -> impl Future<Output = std::io::Result<()>> + Send;

    /// Undoes [`Self::scale_down`].
    fn scale_up(&self) -> impl Future<Output = std::io::Result<()>> + Send;

    /// Gives it a CPU class, or CPUs of its own.
    fn set_cpu(&self, assignment: CpuAssignment) -> std::io::Result<()>;

    /// Its control group, by its path in the mounted tree; None if it has none.
    fn cgroup(&self) -> Option<String> {
        None
    }

    /// CPU time in ns that it used while it served nothing; None if that is not measured.
    fn idle_cpu(&self) -> Option<i64>;

    /// Ends it in order, because it is not needed any more: as [`Self::stop`], but for what has time for
    /// its last work.
    fn retire(&self, grace: Duration) -> impl Future<Output = ()> + Send {
        self.stop(grace)
    }

    /// Ends it within `grace`; nothing of it is left when this returns. May be called again.
    fn stop(&self, grace: Duration) -> impl Future<Output = ()> + Send;

    /// What its end is called if nobody ordered it.
    fn end_reason(&self) -> &'static str {
        "exit"
    }

    /// Resolves when the instance has ended, by itself or not.
    fn exited(&self) -> impl Future<Output = ()> + Send;
}

/// Keeps what was measured, and the accepted events that are not done.
pub(crate) trait Log: Send + Sync + 'static {
    /// Writes an invocation with all that belongs to it, as one: when this returns it is in the log,
    /// or will never be.
    fn invocation(&self, recorded: Arc<Recorded>) -> Result<(), LogError>;

    /// Keeps what a function printed during an invocation, some time soon.
    fn output(&self, row: &Invocation, output: &Bytes);

    /// Writes the state of an instance, some time soon.
    fn instance(&self, row: InstanceRow);

    /// Forgets events, some time soon.
    fn drop_events(&self, ids: Vec<i64>);

    /// The payload of an event; None if the event is not in the log.
    fn payload(
        self: Arc<Self>,
        id: i64,
    ) -> impl Future<Output = Result<Option<Bytes>, LogError>> + Send;
}
