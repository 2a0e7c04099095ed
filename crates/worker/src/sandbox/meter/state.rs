//! What a meter remembers between an invocation's begin and its end.

use std::time::{Duration, Instant};

use super::ByCpu;
use super::cores::Account;
use super::cpu::{IdleCpu, Split};
use super::memory::MemoryAverage;
use super::runtime::Runtime;
use crate::instance::Usage;
use crate::sandbox::cgroup::{Cpu, Throttling};

/// With less CPU time than this in an idle time, the memory is what it was.
pub(super) const MAX_STILL_IDLE_NS: i64 = 100_000;

/// CPU time of an invocation beyond its duration, that tells that more than one thread runs.
const MAX_SINGLE_EXCESS_NS: i64 = 1_000_000;

/// Something runs in the background if it has used one of so many parts of an idle time.
const BACKGROUND_PARTS: u32 = 32;

/// Who has used up a quota does nothing until its next period, of up to 100 ms.
const CALM: Duration = Duration::from_millis(200);

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
    /// How many threads there were when they were last counted; None until then.
    pub known_threads: Option<i64>,
    /// Set where threads may run while the instance idles, to the idle time without that until it is said that
    /// none does.
    pub background: Option<Duration>,
    /// Whether the last invocation used more CPU time than one thread can.
    pub is_parallel: bool,
    /// When it was frozen, if it was since its last invocation.
    pub frozen_at: Option<Instant>,
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
    /// Whether more CPU time was used than one thread can: so much beyond the time that has passed.
    pub(super) fn exceeds_one_thread(&self, now: Instant, cpu: Option<i64>) -> bool {
        let excess = || {
            let passed = now.duration_since(self.before.at?);
            Some(cpu? - self.before.cpu? - i64::try_from(passed.as_nanos()).ok()?)
        };
        excess().is_some_and(|excess| excess > MAX_SINGLE_EXCESS_NS)
    }

    /// Notes, as an invocation begins, whether threads run in the background: that shows in what was used
    /// while the instance idled. Once some do, it takes a time without to say that they no longer do; those that
    /// are only suspected have to show at once.
    pub(super) fn note_background(&mut self, now: Instant, idle: Option<i64>) {
        let until = self.frozen_at.take().unwrap_or(now);
        let (Some(idle), Some(since)) = (idle, self.previous.at) else { return };
        let passed = until.saturating_duration_since(since);
        let used = Duration::from_nanos(idle.unsigned_abs());
        let is_suspected = self.background.is_some() || idle > MAX_STILL_IDLE_NS;
        self.background = if used * BACKGROUND_PARTS > passed {
            is_suspected.then_some(CALM)
        } else {
            self.background.and_then(|left| left.checked_sub(passed))
        };
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

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Whether something is said to run in the background after idle times of so many ms, in which so many ns
    /// were used.
    fn is_background(state: &mut State, idle_times: &[(u64, i64)]) -> Vec<bool> {
        let mut now = Instant::now();
        let note = |(ms, used): &(u64, i64)| {
            state.previous.at = Some(now);
            now += Duration::from_millis(*ms);
            state.note_background(now, Some(*used));
            state.background.is_some()
        };
        idle_times.iter().map(note).collect()
    }

    #[test]
    fn what_works_while_the_instance_idles_is_background_until_it_is_calm() {
        let idle_times =
            [(10, 50_000), (10, MS / 10), (10, MS), (150, 0), (40, 0), (40, 0), (1, 0)];
        let expected = [false, false, true, true, true, false, false];
        assert_eq!(is_background(&mut State::default(), &idle_times), expected);
        let idle_times = [(2, MS), (150, 0), (10, MS), (150, 0)];
        assert_eq!(is_background(&mut State::default(), &idle_times), [true; 4]);
        // As much as what follows an answer takes.
        assert_eq!(is_background(&mut State::default(), &[(0, 90_000), (3_000, MS)]), [false; 2]);
    }

    #[test]
    fn threads_that_are_only_suspected_have_to_show_at_once() {
        let suspecting = || State { background: Some(Duration::ZERO), ..State::default() };
        assert_eq!(is_background(&mut suspecting(), &[(1, 0)]), [false]);
        assert_eq!(is_background(&mut suspecting(), &[(1, 40_000), (150, 0)]), [true, true]);
    }

    #[test]
    fn a_frozen_instance_idled_until_then() {
        let mut state = State::default();
        let now = Instant::now();
        state.previous.at = Some(now);
        state.frozen_at = Some(now + Duration::from_millis(1));
        state.note_background(now + Duration::from_secs(60), Some(MS));
        assert!(state.background.is_some());
        assert!(state.frozen_at.is_none());
    }
}
