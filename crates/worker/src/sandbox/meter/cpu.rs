//! CPU time: of idle times, of a process without control groups, and how it is split.

use crate::sandbox::cgroup::Cpu;

/// CPU time used outside of invocations.
#[derive(Debug)]
pub(super) struct IdleCpu {
    /// Where the account stood when the instance began to idle; None while it serves.
    since: Option<i64>,
    /// Used in earlier idle times; None if it is not measured.
    ns: Option<i64>,
}

impl Default for IdleCpu {
    fn default() -> Self {
        Self { since: None, ns: Some(0) }
    }
}

impl IdleCpu {
    pub(super) fn begin(&mut self, cpu: Option<i64>) {
        self.since = cpu;
        // What was not measured once is not known as a whole.
        self.ns = self.ns.filter(|_| self.since.is_some());
    }

    /// Whether it serves.
    pub(super) fn is_over(&self) -> bool {
        self.since.is_none()
    }

    /// Used since it began to idle, when the account stands at `cpu`.
    pub(super) fn current(&self, cpu: Option<i64>) -> Option<i64> {
        Some((cpu? - self.since?).max(0))
    }

    /// Used in all idle times that are over; None if it is not measured.
    pub(super) fn total(&self) -> Option<i64> {
        self.ns
    }

    pub(super) fn end(&mut self, cpu: Option<i64>) {
        let Some(since) = self.since.take() else { return };
        let used = cpu.map(|cpu| (cpu - since).max(0));
        self.ns = self.ns.zip(used).map(|(before, used)| before + used);
    }
}

/// How much CPU time an invocation uses at least to have a split between user and system of its own:
/// the kernel sees at ticks (4 or 10 ms) which of them it is.
const MIN_OWN_SPLIT_NS: i64 = 20_000_000;

/// The proportion of user and system time, as the kernel saw it.
#[derive(Debug, Default)]
pub(super) struct Split {
    /// Where the account stood when it was last read.
    last: Cpu,
}

impl Split {
    /// Whether enough was used since the last reading to read the proportion again.
    pub(super) fn is_out_of_date(&self, total: i64) -> bool {
        total - self.last.total >= MIN_OWN_SPLIT_NS
    }

    /// Splits `total` ns in the proportion of what was used since the last reading; where that is not
    /// known, in the proportion of the group's life, and without any, all user.
    pub(super) fn split(&mut self, total: i64, now: Option<Cpu>) -> (i64, i64) {
        let before = self.last;
        if let Some(now) = now {
            self.last = now;
        }
        let now = self.last;
        let (mut user, mut system) =
            ((now.user - before.user).max(0), (now.system - before.system).max(0));
        if user + system == 0 {
            (user, system) = (now.user.max(0), now.system.max(0));
        }
        let seen = i128::from(user) + i128::from(system);
        if seen == 0 {
            return (total, 0);
        }
        let user = i128::from(total) * i128::from(user) / seen;
        let user = i64::try_from(user).unwrap_or(total);
        (user, total - user)
    }
}

fn process_clock(pid: libc::pid_t) -> Option<i64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write only to the variables given.
    let ok = unsafe {
        libc::clock_getcpuclockid(pid, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    ok.then(|| time.tv_sec * 1_000_000_000 + time.tv_nsec)
}

/// CPU time of a process without control groups: the total from its clock, the proportion of user
/// and system from its statistics, which count 10 ms ticks.
pub(super) fn process_cpu(pid: libc::pid_t) -> Option<Cpu> {
    let total = process_clock(pid)?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; user and system time are fields 14 and 15.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user = fields.next()?.parse().ok()?;
    let system = fields.next()?.parse().ok()?;
    Some(Cpu { total, user, system })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_proportion_is_found_even_for_a_short_invocation() {
        let mut split = Split::default();
        assert_eq!(split.split(70, None), (70, 0));
        let start = Cpu { total: 1_000, user: 300, system: 100 };
        assert_eq!(split.split(400, Some(start)), (300, 100));
        assert_eq!(split.split(400, None), (300, 100), "the group's life says 3 to 1");
        assert_eq!(split.split(400, Some(start)), (300, 100), "no tick fell into it");
        assert!(!split.is_out_of_date(20_000_999) && split.is_out_of_date(20_001_000));
        let end = Cpu { total: 2_000, user: 300, system: 200 };
        assert_eq!(split.split(1_000, Some(end)), (0, 1_000));
    }

    #[test]
    fn idle_cpu_is_what_lies_between_invocations() {
        let mut idle = IdleCpu::default();
        idle.begin(Some(100));
        assert_eq!(idle.current(Some(120)), Some(20));
        idle.end(Some(130));
        // An invocation used 50.
        idle.begin(Some(180));
        idle.end(Some(181));
        assert_eq!(idle.total(), Some(31));
        idle.end(Some(500));
        assert_eq!(idle.total(), Some(31), "it did not idle");
        idle.begin(Some(600));
        idle.end(None);
        assert_eq!(idle.total(), None, "a part that is not known");
        idle.begin(Some(700));
        idle.end(Some(800));
        assert_eq!(idle.total(), None);
    }

    #[test]
    fn this_process_has_a_clock() {
        let pid = libc::pid_t::try_from(std::process::id()).unwrap();
        let before = process_cpu(pid).unwrap();
        let busy = Instant::now();
        // Others may have the CPUs for a while.
        while process_cpu(pid).unwrap().total - before.total <= 1_000_000 {
            assert!(busy.elapsed() < Duration::from_secs(60), "it stands still");
        }
    }

    proptest! {
        #[test]
        fn user_and_system_always_add_up(
            total in 0_i64..1 << 60,
            readings in proptest::collection::vec((0_i64..1 << 60, 0_i64..1 << 60), 1..4),
        ) {
            let mut split = Split::default();
            for (user, system) in readings {
                let (user, system) = split.split(total, Some(Cpu { total, user, system }));
                prop_assert!(user >= 0 && system >= 0);
                prop_assert_eq!(user + system, total);
            }
        }
    }
}
