//! What is simulated: a control, a kernel, and the work of a group.

use serde::{Deserialize, Serialize};

use super::class::{Class, DEFAULT_WEIGHT};
use crate::{ControlError, MAX_PERIOD, MIN_PERIOD, Nanos};

const SECOND: Nanos = 1_000_000_000;
/// Longest time that is simulated in one go: a day.
const MAX_TIME: Nanos = 86_400 * SECOND;
const MAX_CPUS: usize = 1024;
/// Latest start of a run: 2033 on a clock that counts from 1970.
const MAX_START: Nanos = 2_000_000_000 * SECOND;

/// One setting, simulated several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// What the rows call it.
    pub name: String,
    /// The period of the limit, in ns: 1 ms to 1 s.
    pub period_ns: Nanos,
    /// CPU time in each period; none: no limit.
    pub quota_ns: Option<Nanos>,
    /// Unused quota that may be kept (`cpu.cfs_burst_us`, `cpu.max.burst`).
    #[serde(default)]
    pub burst_ns: Nanos,
    /// Ticks a second (`CONFIG_HZ`).
    #[serde(default = "default_hz")]
    pub hz: u32,
    /// The ticks' grid: whole ticks plus this, on the clock of the results.
    #[serde(default)]
    pub tick_offset_ns: Nanos,
    /// The fair scheduler's algorithm; default: CFS.
    #[serde(default)]
    pub scheduler: Class,
    /// How the group is throttled; default: as a whole.
    #[serde(default)]
    pub throttling: Throttling,
    /// Where the periods begin; default: at whole periods of the clock.
    #[serde(default)]
    pub timer: Timer,
    /// What a CPU takes from the pool at a time (`sched_cfs_bandwidth_slice_us`).
    #[serde(default = "default_slice")]
    pub slice_ns: Nanos,
    /// What a CPU keeps at most of its runtime when the group's last thread there falls asleep
    /// (`min_cfs_rq_runtime`).
    #[serde(default = "default_kept")]
    pub kept_ns: Nanos,
    /// Runtime that each CPU has when a run begins (`runtime_remaining` of its `cfs_rq`): none in a
    /// new group, 1 ns where debts have been paid, up to `kept_ns` where something has run.
    #[serde(default)]
    pub remaining_ns: Nanos,
    /// CPUs that the group may use, 1 to 1024.
    #[serde(default = "one")]
    pub cpus: usize,
    /// The group's weight against its neighbours (`cpu.shares`; 1024 is one thread's).
    #[serde(default = "default_weight")]
    pub weight: u64,
    /// Threads outside the group that compete for the CPUs.
    #[serde(default)]
    pub neighbours: Vec<Vec<Step>>,
    /// From the end of a throttle, or a wake-up, until the thread runs: interrupt and context switch.
    #[serde(default)]
    pub wake_delay_ns: Nanos,
    /// Mean of an exponential that is added to it.
    #[serde(default)]
    pub wake_jitter_ns: Nanos,
    /// How often: probes or patterns run, or tasks done.
    #[serde(default = "one_run")]
    pub runs: u64,
    /// When runs begin on the clock of the results, in turn; unless given, each at a random time.
    #[serde(default)]
    pub starts_ns: Vec<Nanos>,
    /// What the group's threads do.
    pub work: Work,
}

/// How a group without runtime is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Throttling {
    /// Its queue is taken off the CPU (`throttle_cfs_rq`, to Linux 6.17).
    #[default]
    Group,
    /// Each of its threads stops when it returns to user mode (`throttle_cfs_rq_work`, from 6.18).
    Task,
}

/// Where the grid of the period timer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Timer {
    /// At whole periods of the monotonic clock (to Linux 6.3).
    #[default]
    Absolute,
    /// At a random offset, drawn once for a group (`init_cfs_bandwidth`, from 6.4).
    Random,
    /// At this offset, in ns.
    Offset(Nanos),
}

/// What the threads of the group do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Work {
    /// Algorithm 1: each thread reads the clock for `duration_ns` and notes jumps.
    Probe {
        /// How long each thread reads the clock, in ns; above zero.
        duration_ns: Nanos,
        /// The shortest gap that is kept, in ns; default: 0.5 ms.
        #[serde(default = "default_threshold")]
        threshold_ns: Nanos,
        /// How many threads there are, 1 or more.
        #[serde(default = "one")]
        threads: usize,
    },
    /// One thread does tasks of so much CPU time (in turn) and sleeps between them.
    Task {
        /// The tasks' CPU times in ns, at least one.
        cpu_ns: Vec<Nanos>,
        /// Bounds of the sleep before each, drawn evenly; unless given, 3 to 4 periods.
        gap_ns: Option<[Nanos; 2]>,
        /// Instead of bounds, sleeps of which one is drawn before each.
        #[serde(default)]
        sleeps_ns: Vec<Nanos>,
        /// `sleeps_ns` are taken in turn, not drawn.
        #[serde(default)]
        sleeps_in_turn: bool,
        /// CPU time that each uses after it has woken and before it counts as begun (in turn).
        #[serde(default)]
        before_ns: Vec<Nanos>,
        /// Each task in a group of its own, without debts and with a timer of its own.
        #[serde(default)]
        fresh: bool,
        /// The shortest gap that is kept, in ns; default: 0, all of them.
        #[serde(default)]
        threshold_ns: Nanos,
    },
    /// Each thread repeats its steps until `duration_ns` is over.
    Pattern {
        /// How long the threads repeat their steps, in ns; above zero.
        duration_ns: Nanos,
        /// The steps of each thread; at least one thread.
        threads: Vec<Vec<Step>>,
        /// The shortest gap that is kept, in ns; default: 0.5 ms.
        #[serde(default = "default_threshold")]
        threshold_ns: Nanos,
    },
}

/// A step of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Uses CPU time in user mode.
    RunNs(Nanos),
    /// Uses CPU time in the kernel, where task-based throttling does not stop it.
    KernelNs(Nanos),
    /// Waits for something else.
    SleepNs(Nanos),
}

fn default_hz() -> u32 {
    250
}

fn default_slice() -> Nanos {
    5_000_000
}

fn default_kept() -> Nanos {
    1_000_000
}

fn default_threshold() -> Nanos {
    500_000
}

fn default_weight() -> u64 {
    DEFAULT_WEIGHT
}

fn one() -> usize {
    1
}

fn one_run() -> u64 {
    1
}

/// Why a setting cannot be simulated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum SettingError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("{0} ticks a second: the kernel has 24 to 10000")]
    Hz(u32),
    #[error("a slice of 0 ns is never enough")]
    NoSlice,
    #[error("a burst of {burst} ns is above the quota of {quota} ns, which the kernel refuses")]
    Burst { burst: Nanos, quota: Nanos },
    #[error("{0} CPUs: 1 to {MAX_CPUS} are simulated")]
    Cpus(usize),
    #[error("a weight of {0}: the kernel takes 2 to 262144")]
    Weight(u64),
    #[error("{what} of {ns} ns is above a day")]
    TooLong { what: &'static str, ns: Nanos },
    #[error("the work has no {0}")]
    Nothing(&'static str),
    #[error("the sleep before a task is {0} to {1} ns: the second is the longer")]
    Gap(Nanos, Nanos),
    #[error("the timer's offset of {0} ns is not within the period")]
    Offset(Nanos),
    #[error("a start at {0} ns is beyond {MAX_START} ns")]
    Start(Nanos),
}

impl Setting {
    /// A setting with the defaults of the kernel: 250 Hz, CFS, 5 ms slices, one CPU.
    #[must_use]
    pub fn new(period_ns: Nanos, quota_ns: Option<Nanos>, work: Work) -> Self {
        Self {
            name: String::new(),
            period_ns,
            quota_ns,
            burst_ns: 0,
            hz: default_hz(),
            tick_offset_ns: 0,
            scheduler: Class::default(),
            throttling: Throttling::default(),
            timer: Timer::default(),
            slice_ns: default_slice(),
            kept_ns: default_kept(),
            remaining_ns: 0,
            cpus: 1,
            weight: DEFAULT_WEIGHT,
            neighbours: Vec::new(),
            wake_delay_ns: 0,
            wake_jitter_ns: 0,
            runs: 1,
            starts_ns: Vec::new(),
            work,
        }
    }

    /// Length of a tick.
    #[must_use]
    pub fn tick(&self) -> Nanos {
        SECOND / u64::from(self.hz.max(1))
    }

    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), SettingError> {
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.period_ns) {
            return Err(ControlError::Period(self.period_ns).into());
        }
        if let Some(quota) = self.quota_ns {
            if quota == 0 {
                return Err(ControlError::NoQuota.into());
            }
            short("a quota", quota)?;
            if self.burst_ns > quota {
                return Err(SettingError::Burst { burst: self.burst_ns, quota });
            }
        }
        if !(24..=10_000).contains(&self.hz) {
            return Err(SettingError::Hz(self.hz));
        }
        if self.slice_ns == 0 {
            return Err(SettingError::NoSlice);
        }
        if !(1..=MAX_CPUS).contains(&self.cpus) {
            return Err(SettingError::Cpus(self.cpus));
        }
        if !(2..=262_144).contains(&self.weight) {
            return Err(SettingError::Weight(self.weight));
        }
        if let Timer::Offset(offset) = self.timer
            && offset >= self.period_ns
        {
            return Err(SettingError::Offset(offset));
        }
        if let Some(&late) = self.starts_ns.iter().find(|&&start| start > MAX_START) {
            return Err(SettingError::Start(late));
        }
        short("a slice", self.slice_ns)?;
        short("runtime that is kept", self.kept_ns)?;
        short("runtime that remains", self.remaining_ns)?;
        short("an offset of the ticks", self.tick_offset_ns)?;
        short("a delay", self.wake_delay_ns)?;
        short("a delay", self.wake_jitter_ns)?;
        for steps in &self.neighbours {
            check_steps(steps)?;
        }
        self.work.check()
    }
}

impl Work {
    fn check(&self) -> Result<(), SettingError> {
        match self {
            Self::Probe { duration_ns, threads, .. } => {
                if *duration_ns == 0 {
                    return Err(SettingError::Nothing("duration"));
                }
                if *threads == 0 {
                    return Err(SettingError::Nothing("threads"));
                }
                short("a duration", *duration_ns)
            }
            Self::Task { cpu_ns, gap_ns, sleeps_ns, before_ns, .. } => {
                if cpu_ns.is_empty() {
                    return Err(SettingError::Nothing("tasks"));
                }
                for &time in cpu_ns.iter().chain(before_ns) {
                    short("a task", time)?;
                }
                sleeps_ns.iter().try_for_each(|&sleep| short("a sleep", sleep))?;
                if let Some([least, most]) = *gap_ns {
                    if least > most {
                        return Err(SettingError::Gap(least, most));
                    }
                    short("a sleep", most)?;
                }
                Ok(())
            }
            Self::Pattern { duration_ns, threads, .. } => {
                if *duration_ns == 0 {
                    return Err(SettingError::Nothing("duration"));
                }
                if threads.is_empty() {
                    return Err(SettingError::Nothing("threads"));
                }
                short("a duration", *duration_ns)?;
                threads.iter().try_for_each(|steps| check_steps(steps))
            }
        }
    }
}

/// Steps that take no time would be repeated for ever.
fn check_steps(steps: &[Step]) -> Result<(), SettingError> {
    let mut any = false;
    for step in steps {
        let (Step::RunNs(ns) | Step::KernelNs(ns) | Step::SleepNs(ns)) = *step;
        short("a step", ns)?;
        any |= ns > 0;
    }
    if any { Ok(()) } else { Err(SettingError::Nothing("step that takes time")) }
}

fn short(what: &'static str, ns: Nanos) -> Result<(), SettingError> {
    if ns > MAX_TIME { Err(SettingError::TooLong { what, ns }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_simulated_is_told() {
        let probe = Work::Probe { duration_ns: 1, threshold_ns: 1, threads: 1 };
        let good = Setting::new(20_000_000, Some(1_447_000), probe);
        assert_eq!(good.check(), Ok(()));
        let wrong = |change: fn(&mut Setting)| {
            let mut setting = good.clone();
            change(&mut setting);
            setting.check().unwrap_err().to_string()
        };
        assert!(wrong(|s| s.period_ns = 10).contains("1 ms to 1 s"));
        assert!(wrong(|s| s.quota_ns = Some(0)).contains("nothing run"));
        assert!(wrong(|s| s.hz = 0).contains("0 ticks"));
        assert!(wrong(|s| s.burst_ns = 2_000_000).contains("burst"));
        assert!(wrong(|s| s.cpus = 0).contains("CPUs"));
        assert!(wrong(|s| s.slice_ns = 0).contains("slice"));
        assert!(wrong(|s| s.timer = Timer::Offset(20_000_000)).contains("offset"));
        assert!(wrong(|s| s.starts_ns = vec![0, u64::MAX]).contains("a start at"));
        assert!(wrong(|s| s.kept_ns = u64::MAX).contains("kept"));
        assert!(wrong(|s| s.remaining_ns = u64::MAX).contains("remains"));
        assert!(wrong(|s| s.neighbours = vec![vec![Step::RunNs(0)]]).contains("takes time"));
        assert!(
            wrong(|s| s.work = Work::Task {
                cpu_ns: vec![],
                gap_ns: None,
                sleeps_ns: vec![],
                sleeps_in_turn: false,
                before_ns: vec![],
                fresh: false,
                threshold_ns: 0
            })
            .contains("no tasks")
        );
    }

    #[test]
    fn it_is_read_from_json() {
        let setting: Setting = serde_json::from_str(
            r#"{"name": "a", "period_ns": 20000000, "quota_ns": 1447000, "scheduler": "eevdf",
                "timer": {"offset": 3}, "throttling": "task", "runs": 2,
                "work": {"kind": "pattern", "duration_ns": 5, "threads": [[{"run_ns": 1}, {"sleep_ns": 2}]]}}"#,
        )
        .unwrap();
        assert_eq!(setting.timer, Timer::Offset(3));
        assert_eq!(setting.hz, 250);
        let unknown = serde_json::from_str::<Setting>(r#"{"name": "a", "period": 3}"#);
        assert!(unknown.unwrap_err().to_string().contains("unknown field"));
    }
}
