//! What a meter remembers between an invocation's begin and its end.

use std::time::Instant;

use super::ByCpu;
use super::cores::Account;
use super::cpu::{IdleCpu, Split};
use super::memory::MemoryAverage;
use super::runtime::Runtime;
use crate::instance::Usage;
use crate::sandbox::cgroup::{Cpu, Throttling};

#[derive(Default)]
pub(super) struct State {
    pub runtime: Option<Runtime>,
    /// Where the counters stood when the invocation began.
    pub before: Readings,
    /// Where they stood when the last one ended.
    pub previous: Readings,
    pub split: Split,
    pub memory: MemoryAverage,
    /// What others use of its memory, where that is counted.
    pub lent: MemoryAverage,
    /// How many threads there were when it was last found out which of them run; None until then.
    pub known_threads: Option<i64>,
    /// Whether any of them ran then.
    pub has_background: bool,
    /// Where the counters stood at the end of the instance, whose control groups are gone.
    pub last: Option<Readings>,
    pub idle: IdleCpu,
    pub cores: Account,
}

/// Where the counters stand.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Readings {
    pub at: Option<Instant>,
    /// CPU time in ns.
    pub cpu: Option<i64>,
    /// Together with how it is split, if that was read.
    pub split: Option<Cpu>,
    pub throttling: Option<Throttling>,
    pub memory: Option<i64>,
    pub peak: Option<i64>,
    pub oom_kills: Option<i64>,
}

impl State {
    /// CPU time beyond the time that has passed: more than one thread used it.
    pub(super) fn excess(&self, after: &Readings) -> Option<i64> {
        let passed = after.at?.duration_since(self.before.at?);
        Some(after.cpu? - self.before.cpu? - i64::try_from(passed.as_nanos()).ok()?)
    }

    pub(super) fn end(&mut self, after: &Readings, by_cpu: Option<&ByCpu>) -> Usage {
        let mut usage = Usage::default();
        let before = self.before;
        if let (Some(before), Some(now)) = (before.cpu, after.cpu) {
            let (user, system) = self.split.split((now - before).max(0), after.split);
            usage.cpu_user_ns = Some(user);
            usage.cpu_system_ns = Some(system);
        }
        if let (Some(before), Some(after)) = (before.throttling, after.throttling) {
            usage.throttled_count = Some(after.count - before.count);
            usage.throttled_ns = Some(after.ns - before.ns);
        }
        if let Some(bytes) = after.memory {
            self.memory.add(Instant::now(), bytes);
        }
        let total = usage.cpu_user_ns.zip(usage.cpu_system_ns).map(|(user, system)| user + system);
        (usage.borrowed_ns, usage.lent_ns) = self.cores.end(by_cpu, total);
        usage.memory_avg = self.memory.average();
        usage.lent_memory = self.lent.average();
        usage.memory_peak = after.peak.max(self.memory.peak());
        self.idle.begin(after.cpu);
        self.previous = *after;
        usage
    }
}
