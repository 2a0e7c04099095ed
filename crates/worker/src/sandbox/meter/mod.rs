//! What an invocation uses, measured from outside.
//!
//! Counters cost 0.5 us an access, so an invocation takes as few as give the same numbers: what cannot
//! have changed is not read again, and threads are not asked whether they run. Where they may, the CPUs are
//! visited instead.

mod cores;
mod counted;
mod cpu;
mod memory;
mod quota;
mod runtime;
mod sampler;
mod shared;
mod source;
mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cgroup::{Counters, Cpu, Limits, Throttling};
use crate::instance::Usage;
pub(super) use cores::{ByCpu, Reserved};
pub(super) use counted::Counted;
use cpu::{Split, process_cpu};
use memory::{MemoryAverage, MemoryUse};
pub(super) use quota::QuotaUse;
use runtime::{Found, Runtime};
pub(super) use sampler::Sampler;
use shared::Apportionment;
use source::Groups;
pub(super) use source::Source;
use state::{MAX_STILL_IDLE_NS, Readings, State};

/// More CPU time than this in an idle time is more than what follows an answer: something runs in the
/// background.
const MAX_QUIET_IDLE_NS: i64 = 1_000_000;

/// An invocation takes so many accesses at most, whatever its threads. Three things take one more each:
/// 20 ms of CPU time, so that user and system time are read; little memory left, so that kills are; and
/// threads that nothing had told of, at its beginning or end, so that CPU time is read once more.
const MAX_ACCESSES: u32 = 8;

/// The kernel kills for lack of memory where at least these eighths of the limit are in use: it
/// charges whole batches, and huge pages.
const NEAR_LIMIT_EIGHTHS: i64 = 7;

/// Measures the invocations of one instance.
pub(super) struct Meter {
    source: Source,
    /// Whether the memory that it may have is reserved for it.
    reserves: bool,
    sampler: Sampler,
    /// Set where what the kernel counts of invocations is asked for.
    counted: Option<Counted>,
    /// Otherwise nothing is read but why an invocation failed.
    measures: bool,
    /// Its function, which has a share of the CPU, and what the instance may use, in micro-vCPU.
    function: Option<(Arc<str>, u64)>,
    state: Mutex<State>,
    /// What requests that overlap have used; who holds the lock has one begin or end.
    parts: tokio::sync::Mutex<Apportionment>,
}

impl Meter {
    /// `reserves`: whether the memory that it may have is reserved for it.
    pub(super) fn new(source: Source, sampler: Sampler, reserves: bool) -> Self {
        Self {
            reserves,
            source,
            sampler,
            counted: None,
            measures: true,
            function: None,
            state: Mutex::default(),
            parts: tokio::sync::Mutex::default(),
        }
    }

    /// Counts, too, what these counters do.
    pub(super) fn counting(mut self, counted: Option<Counted>) -> Self {
        self.counted = counted;
        self
    }

    /// Measures, or does not.
    pub(super) fn measuring(mut self, measures: bool) -> Self {
        self.measures = measures;
        self
    }

    /// Says whose instance it is, and how much CPU it may use, in micro-vCPU.
    pub(super) fn of_function(mut self, function: &str, micro: u64) -> Self {
        self.function = Some((function.into(), micro));
        self
    }

    pub(super) fn function(&self) -> Option<&(Arc<str>, u64)> {
        self.function.as_ref()
    }

    /// CPU time in ns since its start; None if it is not measured, or no more.
    pub(super) fn cpu_so_far(&self) -> Option<i64> {
        let Source::Groups(groups) = &self.source else { return None };
        groups.counters.cpu_total()
    }

    pub(super) fn set_runtime(&self, pid: libc::pid_t) {
        self.lock().runtime = Some(Runtime::open(pid));
    }

    /// The quota of these limits holds from now on.
    pub(super) fn quota_changed(&self, limits: &Limits) {
        if let Source::Groups(groups) = &self.source
            && let Some(quota) = &groups.quota
        {
            quota.lock().unwrap_or_else(PoisonError::into_inner).restart(limits);
        }
    }

    /// Notes what is reserved for the instance, from its next invocation on.
    pub(super) fn reserve(&self, reserved: Reserved) {
        if let (Reserved::Cpus(_), Some(by_cpu)) = (&reserved, self.by_cpu()) {
            by_cpu.open();
        }
        self.lock().cores.reserved = reserved;
    }

    /// CPU time in ns since its start, and memory in bytes; None if they are not measured, or no more.
    pub(super) fn in_use(&self) -> Option<(i64, u64)> {
        let Source::Groups(groups) = &self.source else { return None };
        let memory = groups.counters.memory()?.try_into().ok()?;
        Some((groups.counters.cpu_total()?, memory))
    }

    fn by_cpu(&self) -> Option<&ByCpu> {
        match &self.source {
            Source::Groups(groups) => groups.by_cpu.as_ref(),
            Source::Process => None,
        }
    }

    /// The instance is ready, and idles from now on.
    pub(super) fn ready(&self) {
        if !self.measures {
            return;
        }
        let mut state = self.lock();
        let (cpu, _) = self.account(&state);
        state.idle.begin(cpu);
        state.previous.at = Some(Instant::now());
    }

    /// The instance is frozen, and uses nothing until its next invocation.
    pub(super) fn frozen(&self) {
        self.lock().frozen_at = Some(Instant::now());
    }

    /// CPU time that the instance used in the idle times that are over; None if it is not measured.
    pub(super) fn idle_cpu(&self) -> Option<i64> {
        if self.measures { self.lock().idle.total() } else { None }
    }

    /// Notes where the counters stand.
    pub(super) async fn begin(self: &Arc<Self>) {
        if !self.measures {
            let mut state = self.lock();
            state.before.oom_kills = state.previous.oom_kills;
            return;
        }
        if let Source::Groups(groups) = &self.source {
            groups.count_anew();
        }
        let had_background = self.lock().background.is_some();
        if had_background {
            self.settle().await;
        }
        let (mut cpu, idle) = {
            let state = self.lock();
            let cpu = self.cpu(&state);
            (cpu, state.idle.current(cpu.0))
        };
        if !had_background && idle.is_some_and(|idle| idle > MAX_QUIET_IDLE_NS) {
            self.settle().await;
            cpu = self.cpu(&self.lock());
        }
        self.note_begin(cpu);
        self.sampler.add(self);
        if let Some(counted) = &self.counted {
            counted.begin();
        }
    }

    fn note_begin(&self, cpu: (Option<i64>, Option<Throttling>)) {
        let mut state = self.lock();
        state.cores.begin(self.by_cpu());
        let now = Instant::now();
        let throttling = self.throttling(&state, cpu);
        let mut before = Readings { at: Some(now), cpu: cpu.0, throttling, ..state.previous };
        let idle = state.idle.current(before.cpu);
        state.note_background(now, idle);
        state.idle.end(before.cpu);
        state.memory = MemoryAverage::default();
        state.lent = MemoryAverage::default();
        if let Source::Groups(groups) = &self.source
            && state.last.is_none()
        {
            let still = idle.is_some_and(|idle| idle <= MAX_STILL_IDLE_NS);
            if before.memory.is_none() || !still {
                before.memory = groups.access(Counters::memory);
            }
            if before.peak.is_none() || before.peak > before.memory {
                groups.access(Counters::reset_peak);
            }
        }
        if let Some(bytes) = before.memory {
            state.memory.add(now, bytes);
            if let Some(lent) = self.sampler.lent_of(self.memory_use(bytes)) {
                state.lent.add(now, lent);
            }
        }
        state.before = before;
    }

    /// What was used since [`Self::begin`].
    pub(super) async fn end(&self) -> Usage {
        if !self.measures {
            // Kills up to here are not the next invocation's.
            if let Source::Groups(groups) = &self.source {
                let kills = groups.counters.oom_kills();
                self.lock().previous.oom_kills = kills;
            }
            return Usage::default();
        }
        let counted = self.counted.as_ref().map(|counted| (counted, counted.end()));
        let mut usage = self.end_of_groups().await;
        if let Some((counted, after)) = counted {
            counted.add(&after, &mut usage);
        }
        usage
    }

    async fn end_of_groups(&self) -> Usage {
        self.sampler.remove(self);
        let is_settled = self.settle_end().await;
        let (mut cpu, is_parallel) = self.cpu_of_end();
        if is_parallel && !is_settled {
            self.settle().await;
            (cpu, _) = self.cpu_of_end();
        }
        let mut state = self.lock();
        state.is_parallel = is_parallel;
        let after = self.read(&state, cpu);
        state.end(&after, self.by_cpu())
    }

    /// CPU time, and whether more of it was used than one thread can.
    fn cpu_of_end(&self) -> ((Option<i64>, Option<Throttling>), bool) {
        let state = self.lock();
        let now = Instant::now();
        let cpu = self.cpu(&state);
        (cpu, state.last.is_none() && state.exceeds_one_thread(now, cpu.0))
    }

    /// [`Self::begin`] for a request that others may overlap; `first` is called before if none is in
    /// flight. Returns its number.
    pub(super) async fn join(self: &Arc<Self>, first: impl FnOnce()) -> u64 {
        let mut parts = self.parts.lock().await;
        if !parts.is_empty() {
            let cpu = self.account(&self.lock()).0;
            return parts.join(cpu);
        }
        first();
        self.begin().await;
        let cpu = self.lock().before.cpu;
        parts.join(cpu)
    }

    /// [`Self::end`] for a request that others may have overlapped, which it says too; `last` is called
    /// after if no other is in flight. Of what overlapped, only the CPU time can be told apart.
    pub(super) async fn leave(&self, request: u64, last: impl FnOnce()) -> (Usage, bool) {
        let mut parts = self.parts.lock().await;
        let whole = if parts.is_last() {
            let usage = self.end().await;
            last();
            Some(usage)
        } else {
            None
        };
        let cpu =
            if whole.is_some() { self.lock().previous.cpu } else { self.account(&self.lock()).0 };
        match (whole, parts.leave(request, cpu)) {
            (Some(usage), Some(part)) if !part.shared => (usage, false),
            (_, part) => {
                let split = self.read_split(&self.lock());
                let part = part.and_then(|part| part.cpu);
                // In the proportion of the instance's life: an interval may be shorter than a tick.
                let part = part.map(|cpu| Split::default().split(cpu, split));
                let (user, system) = part.unzip();
                let usage = Usage { cpu_user_ns: user, cpu_system_ns: system, ..Usage::default() };
                (usage, true)
            }
        }
    }

    /// CPU time and how it is split so far.
    fn read_split(&self, state: &State) -> Option<Cpu> {
        match &self.source {
            _ if !self.measures => None,
            _ if state.last.is_some() => state.last.and_then(|last| last.split),
            Source::Groups(groups) => groups.counters.cpu(),
            Source::Process => state.runtime.as_ref().and_then(|it| process_cpu(it.pid)),
        }
    }

    /// Brings the account up to date: of all threads, which it says, or of the runtime's alone if only that
    /// may run.
    async fn settle_end(&self) -> bool {
        let Source::Groups(groups) = &self.source else { return false };
        if self.lock().last.is_some() {
            return false;
        }
        let left = groups.left_of(MAX_ACCESSES);
        if self.others_may_run(groups, left) {
            self.settle().await;
            return true;
        }
        let mut account = Found::Accounted;
        for look in 0..runtime::LOOKS.min(left.saturating_sub(1)) {
            if look > 0 {
                // It is about to wait for the next request.
                tokio::task::yield_now().await;
            }
            groups.count(1);
            account =
                self.lock().runtime.as_ref().map_or(account, |runtime| runtime.look(look == 0));
            if account == Found::Accounted {
                return false;
            }
        }
        match account {
            Found::Accounted => {}
            Found::Runs(Some(cpu)) => groups.settle_runtime(cpu).await,
            Found::Runs(None) => self.settle().await,
        }
        false
    }

    /// Whether other threads than the runtime's first may run, or cannot be told from it with the accesses
    /// that are left: one for the number of threads, and one for a look at the runtime's at least.
    fn others_may_run(&self, groups: &Groups, left: u32) -> bool {
        let mut state = self.lock();
        if state.background.is_some() || state.is_parallel || left < 2 {
            return true;
        }
        let threads = groups.access(Counters::threads);
        let have_changed = threads != state.known_threads;
        state.known_threads = threads;
        // Those that are there from now on may go on running.
        state.background = have_changed.then_some(Duration::ZERO);
        have_changed
    }

    /// Brings the account of all threads up to date.
    async fn settle(&self) {
        if let Source::Groups(groups) = &self.source {
            groups.settle().await;
        }
    }

    /// Keeps the last readings: to be called when all processes of the instance have ended, before
    /// its control groups are removed.
    pub(super) fn finish(&self) {
        self.sampler.remove(self);
        let mut state = self.lock();
        let mut last = self.read(&state, self.cpu(&state));
        // Its process number may be another's from now on.
        state.runtime = None;
        if let Source::Groups(groups) = &self.source {
            last.oom_kills = groups.counters.oom_kills();
        }
        // The memory of a process that has ended is no longer in use, but it was until just now.
        last.memory = None;
        state.idle.end(last.cpu);
        state.cores.finish(self.by_cpu());
        state.last = Some(last);
    }

    /// Whether the kernel has killed a process of the instance for lack of memory since
    /// [`Self::begin`], or ever, before the first.
    pub(super) fn out_of_memory(&self) -> bool {
        let state = self.lock();
        let after = match (&state.last, &self.source) {
            (Some(last), _) => last.oom_kills,
            (None, Source::Groups(groups)) => groups.counters.oom_kills(),
            (None, Source::Process) => None,
        };
        after.unwrap_or_default() > state.before.oom_kills.unwrap_or_default()
    }

    /// CPU time in ns, and the throttling.
    fn account(&self, state: &State) -> (Option<i64>, Option<Throttling>) {
        let cpu = self.cpu(state);
        (cpu.0, self.throttling(state, cpu))
    }

    /// CPU time in ns; and the throttling, where it comes with it.
    fn cpu(&self, state: &State) -> (Option<i64>, Option<Throttling>) {
        if !self.measures {
            return (None, None);
        }
        if let Some(last) = state.last {
            return (last.cpu, last.throttling);
        }
        match &self.source {
            Source::Groups(groups) => groups.cpu(),
            Source::Process => {
                let runtime = state.runtime.as_ref();
                (runtime.and_then(|it| Some(process_cpu(it.pid)?.total)), None)
            }
        }
    }

    /// The throttling, after [`Self::cpu`] has been read.
    fn throttling(
        &self,
        state: &State,
        cpu: (Option<i64>, Option<Throttling>),
    ) -> Option<Throttling> {
        match &self.source {
            Source::Groups(groups) if self.measures && state.last.is_none() => {
                groups.throttling(cpu)
            }
            _ => cpu.1,
        }
    }

    /// Reads what an invocation's end needs beside the CPU time.
    fn read(&self, state: &State, cpu: (Option<i64>, Option<Throttling>)) -> Readings {
        if let Some(last) = state.last {
            return last;
        }
        let mut readings = Readings { at: Some(Instant::now()), cpu: cpu.0, ..Readings::default() };
        match &self.source {
            Source::Groups(groups) => {
                readings.throttling = groups.throttling(cpu);
                let total = cpu.0.filter(|total| state.split.is_out_of_date(*total));
                readings.split =
                    total.and_then(|total| groups.access(|counters| counters.cpu_divided(total)));
                readings.memory = groups.access(Counters::memory);
                readings.peak = groups.access(Counters::peak);
                let near = |peak| peak >= groups.memory_limit / 8 * NEAR_LIMIT_EIGHTHS;
                readings.oom_kills = if readings.peak.is_none_or(near) {
                    groups.access(Counters::oom_kills)
                } else {
                    state.before.oom_kills
                };
            }
            Source::Process => {
                readings.split = state.runtime.as_ref().and_then(|it| process_cpu(it.pid));
                readings.cpu = readings.split.map(|cpu| cpu.total);
            }
        }
        readings
    }

    /// What it uses and what is reserved for it, if anything is.
    fn memory_use(&self, bytes: i64) -> MemoryUse {
        let reserved = match &self.source {
            Source::Groups(groups) if self.reserves => Some(groups.memory_limit.unsigned_abs()),
            _ => None,
        };
        MemoryUse { used: bytes.max(0).unsigned_abs(), reserved }
    }

    /// Notes what others use of its memory now.
    fn lend(&self, now: Instant, bytes: u64) {
        let mut state = self.lock();
        if state.idle.is_over() && state.last.is_none() {
            state.lent.add(now, i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Notes what memory it uses; returns it while it serves.
    fn sample(&self, now: Instant) -> Option<MemoryUse> {
        let Source::Groups(groups) = &self.source else { return None };
        let mut state = self.lock();
        // The invocation may have ended while this waited for the lock.
        if state.idle.is_over()
            && state.last.is_none()
            && let Some(bytes) = groups.counters.memory()
        {
            state.memory.add(now, bytes);
            return Some(self.memory_use(bytes));
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.sampler.remove(self);
    }
}

#[cfg(test)]
mod tests;
