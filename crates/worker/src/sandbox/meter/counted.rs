//! What the kernel and the CPU count of an invocation, where that is asked for: performance events of its group,
//! and how long its threads waited for a CPU.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::Instant;

use crate::instance::{Events, Usage};
use crate::sandbox::cgroup::{Counters, Group, PerfEvents, PerfReading, Wait, Waits};
use crate::sandbox::priority::allowed_cpus;

/// `PERF_TYPE_SOFTWARE`: page faults, context switches.
const SOFTWARE: [(u32, u64); 2] = [(1, 2), (1, 3)];
/// `PERF_TYPE_HARDWARE`: cycles, instructions, mispredicted branches, misses of the last level of caches.
const HARDWARE: [(u32, u64); 4] = [(0, 0), (0, 1), (0, 5), (0, 3)];

/// Threads whose running is not seen took their waiting with them, if it is more than a fiftieth of the CPU time
/// that the group used...
const UNSEEN_DENOMINATOR: i64 = 50;
/// ... and more than this, which may pass between the readings of both.
const UNSEEN_NS: i64 = 200_000;
/// Of threads that a quota holds back, one that waited for less than a tenth of that time was not held back.
const HELD_DENOMINATOR: i64 = 10;

/// That it is said once.
static REFUSED: Once = Once::new();

/// Reads the counters of one instance.
pub(in crate::sandbox) struct Counted {
    counters: Counters,
    /// On each CPU. Empty where the kernel does not count.
    software: Vec<PerfEvents>,
    hardware: Vec<PerfEvents>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waits: Waits,
    before: Reading,
}

/// Where the counters stand.
#[derive(Debug, Default)]
pub(super) struct Reading {
    software: Option<[PerfReading; SOFTWARE.len()]>,
    hardware: Option<Vec<[PerfReading; HARDWARE.len()]>>,
    /// When these were read.
    waits: Option<(Instant, HashMap<i32, Wait>)>,
}

impl Counted {
    pub(in crate::sandbox) fn open(group: &Group) -> Self {
        let folder = group.events_folder().and_then(|folder| File::open(folder).ok());
        let on_all = |events: &[(u32, u64)]| {
            let folder = folder.as_ref()?;
            let on =
                |cpu| PerfEvents::open(events, i32::try_from(cpu).ok()?, Some(folder.as_fd())).ok();
            allowed_cpus().into_iter().map(on).collect::<Option<Vec<_>>>()
        };
        let software = on_all(&SOFTWARE);
        if software.is_none() {
            REFUSED.call_once(|| {
                tracing::warn!(
                    "page faults and context switches of invocations are not counted (null): that takes a mounted \
                     tree of control groups of version 2, root or CAP_PERFMON, and enough open files"
                );
            });
        }
        Self {
            counters: group.counters(),
            software: software.unwrap_or_default(),
            hardware: on_all(&HARDWARE).unwrap_or_default(),
            state: Mutex::default(),
        }
    }

    /// Notes where the counters stand.
    pub(super) fn begin(&self) {
        let (software, hardware) = self.events();
        let mut state = self.lock();
        let waits = state.waits.known(&self.counters).map(|waits| (Instant::now(), waits));
        state.before = Reading { software, hardware, waits };
    }

    /// Where they stand at the end, as near to it as can be.
    pub(super) fn end(&self) -> Reading {
        let (software, hardware) = self.events();
        let waits = self.lock().waits.all(&self.counters).map(|waits| (Instant::now(), waits));
        Reading { software, hardware, waits }
    }

    /// Adds to what an invocation used what was counted of it.
    pub(super) fn add(&self, after: &Reading, usage: &mut Usage) {
        let before = std::mem::take(&mut self.lock().before);
        if let (Some(before), Some(after)) = (before.software, after.software) {
            let grown = |at: usize| signed(after[at].count - before[at].count);
            usage.events.page_faults = grown(0);
            usage.events.context_switches = grown(1);
        }
        if let (Some(before), Some(after)) = (&before.hardware, &after.hardware) {
            let grown = |at: usize| {
                let pairs = before.iter().zip(after);
                pairs.map(|(before, after)| scaled(before[at], after[at])).sum::<Option<i64>>()
            };
            usage.events = Events {
                cycles: grown(0),
                instructions: grown(1),
                branch_misses: grown(2),
                llc_misses: grown(3),
                ..usage.events
            };
        }
        if let (Some((began, before)), Some((ended, after))) = (before.waits, &after.waits) {
            let passed = i64::try_from((*ended - began).as_nanos()).unwrap_or(i64::MAX);
            let cpu =
                usage.cpu_user_ns.zip(usage.cpu_system_ns).map(|(user, system)| user + system);
            usage.cpu_wait_ns = waited(&before, after, passed, cpu, usage.throttled_ns);
        }
    }

    fn events(&self) -> (Option<[PerfReading; 2]>, Option<Vec<[PerfReading; 4]>>) {
        let mut software = (!self.software.is_empty()).then(<[PerfReading; 2]>::default);
        for events in &self.software {
            software = software.zip(events.read()).map(|(mut all, read)| {
                for (all, read) in all.iter_mut().zip(read) {
                    all.count += read.count;
                }
                all
            });
        }
        let first = |events: &PerfEvents| {
            let [a, b, c, d, _] = events.read()?;
            Some([a, b, c, d])
        };
        let has_pmu = !self.hardware.is_empty();
        (software, has_pmu.then(|| self.hardware.iter().map(first).collect()).flatten())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signed(count: u64) -> Option<i64> {
    i64::try_from(count).ok()
}

/// By what an event grew, scaled to the whole time where others had the CPU's counters in between; unknown if it was
/// never counted.
fn scaled(before: PerfReading, after: PerfReading) -> Option<i64> {
    let count = after.count - before.count;
    let (enabled, running) = (after.enabled - before.enabled, after.running - before.running);
    if running >= enabled {
        return signed(count);
    }
    (running > 0).then(|| (count as f64 * enabled as f64 / running as f64).round() as i64)
}

/// How long the threads waited for a CPU. The kernel counts what a quota holds back as waiting, too, so that is taken
/// off. Waiting that had begun before the invocation is counted when it ends, so no thread has waited for longer than
/// it could. `None` if it cannot be told from whom, if threads have ended that did a part of the work, or if what
/// some did before the invocation is not known.
fn waited(
    before: &HashMap<i32, Wait>,
    after: &HashMap<i32, Wait>,
    passed: i64,
    cpu: Option<i64>,
    throttled: Option<i64>,
) -> Option<i64> {
    let grown: Vec<_> = after
        .iter()
        .map(|(id, after)| after.since(before.get(id).copied().unwrap_or_default()))
        .map(|it| Wait { waited: it.waited.min(passed - it.ran).max(0), ..it })
        .collect();
    let (ran, waited) =
        grown.iter().fold((0, 0), |(ran, waited), it| (ran + it.ran, waited + it.waited));
    // If they ran for longer, a thread that began before the invocation was not known then, and what it did
    // before is counted.
    let unseen = cpu.map_or(0, |cpu| (cpu - ran).abs());
    if unseen > UNSEEN_NS && unseen > cpu.unwrap_or_default() / UNSEEN_DENOMINATOR {
        return None;
    }
    let throttled = throttled.unwrap_or_default();
    let held = grown.iter().filter(|it| it.waited > throttled / HELD_DENOMINATOR).count();
    if throttled > 0 && held > 1 {
        return None;
    }
    Some((waited - throttled).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits<const N: usize>(threads: [(i32, i64, i64); N]) -> HashMap<i32, Wait> {
        threads.into_iter().map(|(id, ran, waited)| (id, Wait { ran, waited })).collect()
    }

    const MS: i64 = 1_000_000;

    #[test]
    fn waiting_is_what_the_quota_did_not_hold_back() {
        let before = waits([(1, 100 * MS, 50 * MS), (2, MS, 0)]);
        let after = waits([(1, 110 * MS, 58 * MS), (2, MS, 0)]);
        assert_eq!(waited(&before, &after, 18 * MS, Some(10 * MS), Some(0)), Some(8 * MS));
        assert_eq!(waited(&before, &after, 15 * MS, Some(10 * MS), Some(0)), Some(5 * MS));
        assert_eq!(waited(&before, &after, 18 * MS, Some(10 * MS), Some(5 * MS)), Some(3 * MS));
        assert_eq!(waited(&before, &after, 18 * MS, Some(10 * MS), Some(9 * MS)), Some(0));
        let both = waits([(1, 110 * MS, 58 * MS), (2, 3 * MS, 8 * MS)]);
        assert_eq!(waited(&before, &both, 20 * MS, Some(12 * MS), Some(0)), Some(16 * MS));
        let shared = waited(&before, &both, 20 * MS, Some(12 * MS), Some(8 * MS));
        assert_eq!(shared, None, "whose it was?");
    }

    #[test]
    fn threads_that_ended_take_their_waiting_with_them() {
        let before = waits([(1, 100 * MS, 50 * MS)]);
        let after = waits([(1, 104 * MS, 50 * MS), (2, 5 * MS, MS)]);
        assert_eq!(waited(&before, &after, 9 * MS, Some(9 * MS), None), Some(MS));
        assert_eq!(waited(&before, &after, 30 * MS, Some(30 * MS), None), None);
        assert_eq!(waited(&before, &after, 9 * MS, None, None), Some(MS));
        let earlier = waits([(1, 104 * MS, 50 * MS), (2, 25 * MS, 4 * MS)]);
        assert_eq!(waited(&before, &earlier, 9 * MS, Some(9 * MS), None), None, "idle time's");
    }

    #[test]
    fn events_are_scaled_to_the_whole_time() {
        let reading = |count, enabled, running| PerfReading { count, enabled, running };
        let before = reading(100, 1_000, 1_000);
        assert_eq!(scaled(before, reading(150, 2_000, 2_000)), Some(50));
        assert_eq!(scaled(before, reading(150, 2_000, 1_250)), Some(200));
        assert_eq!(scaled(before, reading(100, 2_000, 1_000)), None);
        assert_eq!(scaled(before, before), Some(0), "an instance that did not run");
    }
}
