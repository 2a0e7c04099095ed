//! When a group cannot have been throttled, so that its counts need not be read.
//!
//! The kernel hands the quota of a period out in slices (`sched_cfs_bandwidth_slice_us`), to each
//! processor on which the group runs, and throttles it when nothing is left (`assign_cfs_rq_runtime`,
//! `throttle_cfs_rq` in `kernel/sched/fair.c`). At that moment all of the quota has been handed out since the last
//! refill, and what of it was not used is at most a slice on each processor. So a group that used less
//! than its quota without these slices in every stretch of time as long as a period was not throttled.
//!
//! The group's CPU time is accounted in the same step of the kernel (`update_curr`) as the use of its quota, so
//! that what is missing in the one is missing in the other.

use std::fs;
use std::time::{Duration, Instant};

use crate::sandbox::cgroup::{Limits, Throttling};

/// Periods within which the use is bounded: one, and as much for a timer that the machine delays.
const WINDOW_PERIODS: u32 = 2;

/// What a group uses of its quota, as far as tells whether it may have been throttled.
#[derive(Debug)]
pub(in crate::sandbox) struct QuotaUse {
    /// Less CPU time than this in ns within each window does not throttle; `None` where no use is so little.
    bound: Option<i64>,
    /// What the kernel hands out at a time, in ns, and to how many processors.
    slice: Option<i64>,
    processors: i64,
    window: Duration,
    /// Two earlier readings of moment and CPU time, at least a window apart.
    marks: Option<[(Instant, i64); 2]>,
    /// The counts when they were last read; `None` if they must be.
    known: Option<Throttling>,
}

impl QuotaUse {
    pub(in crate::sandbox) fn new(limits: &Limits) -> Self {
        Self::of(limits, slice_ns(), processors())
    }

    fn of(limits: &Limits, slice: Option<i64>, processors: i64) -> Self {
        let bandwidth = limits.bandwidth();
        let quota = i64::try_from(bandwidth.quota).unwrap_or(i64::MAX);
        let slices = slice.and_then(|slice| slice.checked_mul(processors));
        let bound = slices.map(|slices| quota - slices).filter(|bound| *bound > 0);
        let window = Duration::from_nanos(bandwidth.period) * WINDOW_PERIODS;
        Self { bound, slice, processors, window, marks: None, known: None }
    }

    /// Forgets all: this quota holds from now on, which may be another.
    pub(super) fn restart(&mut self, limits: &Limits) {
        *self = Self::of(limits, self.slice, self.processors);
    }

    /// The counts now, at which the group has used `cpu` ns since it was made: those read before if they cannot have
    /// changed, else what `read` returns. To be called in the order of time.
    pub(super) fn throttling(
        &mut self,
        now: Instant,
        cpu: Option<i64>,
        read: impl FnOnce() -> Option<Throttling>,
    ) -> Option<Throttling> {
        let is_little = cpu.is_some_and(|cpu| self.is_little(now, cpu));
        if !is_little || self.known.is_none() {
            let counts = read();
            // After much use a group may be throttled still: what that adds is read once more.
            self.known = counts.filter(|_| is_little);
            return counts;
        }
        self.known
    }

    /// Whether less than the bound was used in each window since the earlier mark, and for one at least.
    fn is_little(&mut self, now: Instant, cpu: i64) -> bool {
        let Some(bound) = self.bound else { return false };
        let Some([earlier, later]) = self.marks else {
            self.marks = Some([(now, cpu); 2]);
            return false;
        };
        let is_little =
            cpu - earlier.1 < bound && now.saturating_duration_since(earlier.0) >= self.window;
        if now.saturating_duration_since(later.0) >= self.window {
            self.marks = Some([later, (now, cpu)]);
        }
        is_little
    }
}

/// What the kernel hands out at a time, in ns.
fn slice_ns() -> Option<i64> {
    let text = fs::read_to_string("/proc/sys/kernel/sched_cfs_bandwidth_slice_us").ok()?;
    text.trim().parse::<i64>().ok()?.checked_mul(1_000)
}

fn processors() -> i64 {
    // SAFETY: it reads a number.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use uncia_cgroup::{Group, discover, own_name};

    use super::*;

    const LIMITS: Limits =
        Limits { memory_bytes: 1 << 30, pids_max: 64, cpu_micro: 1_000_000, period_us: 20_000 };
    const PERIOD: Duration = Duration::from_millis(20);

    fn counts(count: i64) -> Throttling {
        Throttling { periods: count, count, ns: count }
    }

    /// Whether they were read at such moments, in periods since the start, and such use, in ms.
    fn reads(readings: &[(u32, i64)]) -> Vec<bool> {
        let start = Instant::now();
        let mut quota = QuotaUse::of(&LIMITS, Some(5_000_000), 2);
        let read = |(periods, ms): &(u32, i64)| {
            let mut is_read = false;
            let now = start + PERIOD * *periods;
            quota.throttling(now, Some(ms * 1_000_000), || {
                is_read = true;
                Some(counts(1))
            });
            is_read
        };
        readings.iter().map(read).collect()
    }

    #[test]
    fn counts_are_read_again_after_much_use_and_once_after_that() {
        // Of 20 ms a period 10 may lie in slices.
        assert_eq!(reads(&[(0, 0), (1, 1), (2, 2), (3, 3)]), [true, true, true, false]);
        assert_eq!(reads(&[(0, 0), (2, 1), (3, 9), (4, 9)]), [true, true, false, false]);
        let much = [(0, 0), (2, 0), (3, 11), (4, 11), (5, 11), (7, 11), (9, 11), (11, 11)];
        assert_eq!(reads(&much), [true, true, true, true, true, true, true, false]);
    }

    #[test]
    fn a_quota_within_the_slices_of_all_processors_has_its_counts_read() {
        let mut quota = QuotaUse::of(&LIMITS, Some(5_000_000), 4);
        let start = Instant::now();
        for period in 0..9 {
            let expected = Some(counts(period.into()));
            assert_eq!(quota.throttling(start + PERIOD * period, Some(0), || expected), expected);
        }
        assert_eq!(QuotaUse::of(&LIMITS, None, 2).bound, None, "a kernel that does not say");
    }

    #[test]
    fn another_quota_has_them_read() {
        let mut quota = QuotaUse::of(&LIMITS, Some(5_000_000), 2);
        let start = Instant::now();
        for period in [0, 2, 4] {
            quota.throttling(start + PERIOD * period, Some(0), || Some(counts(1)));
        }
        quota.restart(&LIMITS);
        assert_eq!(
            quota.throttling(start + PERIOD * 6, Some(0), || Some(counts(2))),
            Some(counts(2))
        );
        // Of a hundredth nothing is so little that it is not throttled.
        quota.restart(&LIMITS.scaled_down());
        for period in 8..99 {
            let expected = Some(counts(period.into()));
            assert_eq!(quota.throttling(start + PERIOD * period, Some(0), || expected), expected);
        }
    }

    /// Uses CPU time and sleeps in turn, some 10 times as long the longer.
    const WORK: &str = "while :; do for n in 900 300 9000 100 100 100 2500; do
        i=0; while [ $i -lt $n ]; do i=$((i+1)); done; sleep 0.0$((n % 7 + 1)); done; done";

    #[test]
    fn what_is_not_read_has_not_changed() {
        let Some(layout) = discover(&own_name(), false) else {
            return eprintln!("skipped: no control groups");
        };
        let group = Group::create(&layout, "quota", &LIMITS).unwrap();
        group.set_quota(&LIMITS).unwrap();
        let counters = group.counters();
        if !counters.has_throttling_file() {
            group.remove().unwrap();
            layout.remove().unwrap();
            return eprintln!("skipped: throttling has no file of its own here");
        }
        let mut workers: Vec<_> = (0..3)
            .map(|_| Command::new("sh").args(["-c", WORK]).spawn().expect("a shell"))
            .collect();
        for worker in &workers {
            for file in group.join_files() {
                fs::write(file, worker.id().to_string()).unwrap();
            }
        }
        let mut quota = QuotaUse::new(&LIMITS);
        let mut kept = 0;
        for _ in 0..300 {
            thread::sleep(Duration::from_millis(5));
            let mut is_read = false;
            let now = quota.throttling(Instant::now(), counters.cpu_total(), || {
                is_read = true;
                counters.throttling()
            });
            let truth = counters.throttling();
            if !is_read {
                kept += 1;
                let counted = |counts: Option<Throttling>| counts.map(|it| (it.count, it.ns));
                assert_eq!(counted(now), counted(truth));
            }
        }
        assert!(kept > 0, "it was always read");
        for worker in &mut workers {
            worker.kill().unwrap();
            worker.wait().unwrap();
        }
        group.remove().unwrap();
        layout.remove().unwrap();
    }
}
