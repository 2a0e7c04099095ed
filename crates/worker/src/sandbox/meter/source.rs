//! Where an instance's numbers come from.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{ByCpu, QuotaUse};
use crate::sandbox::cgroup::{Counters, Running, Threads, Throttling};
use crate::sandbox::enforcer::{self, Enforcer, Watched};

/// Where the numbers come from.
pub(in crate::sandbox) enum Source {
    Groups(Arc<Groups>),
    /// Without control groups: the CPU time of the runtime's process alone.
    Process,
}

/// The counters of control groups, and what keeps them exact.
pub(in crate::sandbox) struct Groups {
    pub counters: Counters,
    /// The limit of memory in bytes.
    pub memory_limit: i64,
    /// Who counts the throttling, if not the kernel.
    pub watched: Option<Arc<Watched>>,
    /// Who brings the kernel's account up to date.
    pub enforcer: Arc<Enforcer>,
    /// Only the enforcer's thread uses them.
    pub threads: Mutex<Threads>,
    /// Set where throttling has a file of its own, which need not be read while little is used.
    pub quota: Option<Mutex<QuotaUse>>,
    /// Set where it is counted whose CPUs are used.
    pub by_cpu: Option<ByCpu>,
}

impl Source {
    pub(in crate::sandbox) fn groups(
        counters: Counters,
        memory_limit: u64,
        watched: Option<Arc<Watched>>,
        enforcer: Arc<Enforcer>,
        by_cpu: Option<ByCpu>,
        quota: QuotaUse,
    ) -> Self {
        let memory_limit = i64::try_from(memory_limit).unwrap_or(i64::MAX);
        let threads = Mutex::default();
        let quota = counters.has_throttling_file().then(|| Mutex::new(quota));
        Self::Groups(Arc::new(Groups {
            counters,
            memory_limit,
            watched,
            enforcer,
            threads,
            quota,
            by_cpu,
        }))
    }
}

impl Groups {
    /// CPU time in ns, and the throttling.
    pub(super) fn cpu_and_throttling(&self) -> (Option<i64>, Option<Throttling>) {
        if let Some(watched) = &self.watched {
            return (self.counters.cpu_total(), Some(watched.throttling()));
        }
        let Some(quota) = &self.quota else { return self.counters.cpu_total_and_throttling() };
        let mut quota = quota.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = self.counters.cpu_total();
        let throttling = quota.throttling(Instant::now(), cpu, || self.counters.throttling());
        (cpu, throttling)
    }

    /// Has the scheduler account for what those of the group who run now have used; whether there
    /// are any. Otherwise the time since the last tick (4 ms at 250 Hz) of a thread that runs on may
    /// be missing. Asking for a CPU clock helps with one's own threads only.
    pub(super) async fn settle(self: &Arc<Self>) -> bool {
        let own = self.clone();
        let settled =
            self.enforcer.settle(move || enforcer::running(&own.counters, &own.threads)).await;
        // Not known: it is asked again.
        settled.is_none_or(|running| running.threads > 0)
    }

    /// [`Self::settle`] for the runtime's thread alone, in the moment after it has sent its answer.
    pub(super) async fn settle_runtime(&self, cpu: usize) {
        self.enforcer.settle(move || Running { threads: 1, cpus: vec![cpu] }).await;
    }
}
