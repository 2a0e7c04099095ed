//! Where an instance's numbers come from.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::{ByCpu, QuotaUse};
use crate::sandbox::cgroup::{Counters, Running, Threads, Throttling};
use crate::sandbox::enforcer::{self, Enforcer, Watched};
use crate::sandbox::priority;

/// On a machine with so many CPUs at most, all of them are visited: some 10 us each, so that no thread of a
/// group need be asked whether it runs, at 3 us each.
const MAX_VISITED: usize = 16;

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
    threads: Mutex<Threads>,
    /// How many accesses this invocation has taken.
    accesses: AtomicU32,
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
            accesses: AtomicU32::new(0),
            quota,
            by_cpu,
        }))
    }
}

impl Groups {
    /// Reads a counter for an invocation, and counts that.
    pub(super) fn access<T>(&self, read: impl FnOnce(&Counters) -> T) -> T {
        self.count(1);
        read(&self.counters)
    }

    /// The invocation takes so many accesses.
    pub(super) fn count(&self, accesses: u32) {
        self.accesses.fetch_add(accesses, Ordering::Relaxed);
    }

    /// Counts anew.
    pub(super) fn count_anew(&self) {
        self.accesses.store(0, Ordering::Relaxed);
    }

    /// How many of so many accesses are left, if the end takes no more than it has to.
    pub(super) fn left_of(&self, most: u32) -> u32 {
        // CPU time, memory and its peak; and the throttling, if it has a file of its own.
        let end = 3 + u32::from(self.watched.is_none() && self.quota.is_some());
        most.saturating_sub(self.accesses.load(Ordering::Relaxed) + end)
    }

    /// CPU time in ns; and the throttling, if one file has both.
    pub(super) fn cpu(&self) -> (Option<i64>, Option<Throttling>) {
        if self.watched.is_some() || self.quota.is_some() {
            return (self.access(Counters::cpu_total), None);
        }
        self.access(Counters::cpu_total_and_throttling)
    }

    /// The throttling after [`Self::cpu`] has been read.
    pub(super) fn throttling(
        &self,
        (cpu, throttling): (Option<i64>, Option<Throttling>),
    ) -> Option<Throttling> {
        if let Some(watched) = &self.watched {
            return Some(watched.throttling());
        }
        let Some(quota) = &self.quota else { return throttling };
        let mut quota = quota.lock().unwrap_or_else(PoisonError::into_inner);
        quota.throttling(Instant::now(), cpu, || self.access(Counters::throttling))
    }

    /// Has the scheduler account for what those of the group who run now have used. Otherwise the time
    /// since the last tick (4 ms at 250 Hz) of a thread that runs on may be missing. Asking for a CPU clock
    /// helps with one's own threads only.
    pub(super) async fn settle(self: &Arc<Self>) {
        let own = self.clone();
        // Without precedence it would wait its turn on each CPU: then it visits those alone that need it.
        let goes_first = self.enforcer.goes_first();
        // What ran there was accounted for when the caller began to, and is again when it goes on; and it should
        // find its CPU free.
        let here = nix::sched::sched_getcpu().ok();
        let find = move || {
            let mut running = Running { threads: 0, cpus: priority::allowed_cpus() };
            if running.cpus.len() > MAX_VISITED || !goes_first {
                running = enforcer::running(&own.counters, &own.threads);
            }
            running.cpus.retain(|cpu| Some(*cpu) != here);
            running
        };
        self.enforcer.settle(find).await;
    }

    /// [`Self::settle`] for the runtime's thread alone, in the moment after it has sent its answer.
    pub(super) async fn settle_runtime(&self, cpu: usize) {
        self.enforcer.settle(move || Running { threads: 1, cpus: vec![cpu] }).await;
    }
}
