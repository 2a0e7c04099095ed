//! What to measure: JSON.

use std::path::PathBuf;

use serde::Deserialize;

use super::ProbeError;
use super::watch::Until;
use crate::Nanos;
use crate::cgroup::Bandwidth;

const THRESHOLD: Nanos = 500_000;
const SECOND: Nanos = 1_000_000_000;
/// The kernel accounts at ticks, of 10 ms at most, so that a group owes that much at most.
const LONGEST_TICK: Nanos = 10_000_000;
/// Below this a turn of the loop is a jump.
const LEAST_THRESHOLD: Nanos = 1_000;
/// Jumps that a run has room for: 16 bytes each.
const MOST_ROOM: u64 = 4_000_000;
const TASK_ROOM: usize = 1_000_000;

/// A profile to make.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The period of the limit, in ns.
    pub period_ns: Nanos,
    /// `None`: the group is not limited.
    pub quota_ns: Option<Nanos>,
    /// Unused quota that may be kept, in ns; 0: none.
    #[serde(default)]
    pub burst_ns: Nanos,
    /// How long each run watches; exclusive with `task`.
    pub duration_ns: Option<Nanos>,
    /// How many runs; with `task`, how often its list is gone through.
    #[serde(default = "once")]
    pub repeat: u64,
    /// Tasks that need a given CPU time each, instead of runs of a given duration.
    pub task: Option<Task>,
    /// The shortest jump that counts as a throttle, in ns; default: 0.5 ms.
    #[serde(default = "threshold")]
    pub threshold_ns: Nanos,
    /// How many control groups the runs are spread over, one after the other. Since Linux 6.4 each
    /// has a period timer with an offset of its own among the ticks, and that decides how long it
    /// runs and is throttled; a group keeps it for life.
    #[serde(default = "once")]
    pub groups: u64,
    /// The CPU that the probe stays on.
    pub cpu: Option<usize>,
    /// Of the random phases.
    #[serde(default)]
    pub seed: u64,
    /// How long the group is idle between runs at least, besides a random part of a period; by
    /// default, for as long as it can owe CPU time, and a period more.
    pub idle_ns: Option<Nanos>,
    /// How long the probe watches without a quota first, for the jumps that no quota explains.
    #[serde(default = "second")]
    pub baseline_ns: Nanos,
    /// Version 2 of control groups even where version 1 has the controller.
    #[serde(default)]
    pub unified: bool,
    /// The folder for the tables; it is there already.
    pub out: PathBuf,
    /// Name of the run in the tables.
    pub run: String,
}

/// CPU times of tasks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// One task each, in ns.
    pub cpu_ns: Vec<Nanos>,
}

fn once() -> u64 {
    1
}

fn threshold() -> Nanos {
    THRESHOLD
}

fn second() -> Nanos {
    SECOND
}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// A sentence about what is wrong, and the key.
    pub fn from_json(json: &str) -> Result<Self, ProbeError> {
        let config: Self =
            serde_json::from_str(json).map_err(|error| ProbeError::Config(error.to_string()))?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ProbeError> {
        let wrong = |message: &str| Err(ProbeError::Config(message.to_owned()));
        match (&self.task, self.duration_ns) {
            (None, None) => return wrong("either duration_ns or task must be given"),
            (Some(_), Some(_)) => return wrong("duration_ns and task exclude each other"),
            (None, Some(0)) => return wrong("duration_ns is 0"),
            (Some(task), None) if task.cpu_ns.is_empty() => return wrong("task.cpu_ns is empty"),
            (Some(task), None) if task.cpu_ns.contains(&0) => return wrong("task.cpu_ns has a 0"),
            _ => {}
        }
        if self.repeat == 0 {
            return wrong("repeat is 0, and nothing would be measured");
        }
        if !(1..=self.repeat).contains(&self.groups) {
            return wrong("groups is not between 1 and repeat: each has a run at least");
        }
        if self.threshold_ns < LEAST_THRESHOLD {
            return wrong("threshold_ns is below 1000, which a turn of the loop may take itself");
        }
        if let Some(duration) = self.duration_ns
            && duration / self.threshold_ns > MOST_ROOM
        {
            return wrong(
                "duration_ns / threshold_ns is above 4 million jumps: shorten the one or raise the \
                 other",
            );
        }
        match self.bandwidth() {
            Some(bandwidth) => Ok(bandwidth.check()?),
            None if self.burst_ns > 0 => wrong("burst_ns needs quota_ns"),
            None => Ok(()),
        }
    }

    /// The limit of the group; `None`: none.
    #[must_use]
    pub(super) fn bandwidth(&self) -> Option<Bandwidth> {
        let (period, burst) = (self.period_ns, self.burst_ns);
        self.quota_ns.map(|quota| Bandwidth { period, quota, burst })
    }

    /// What ends each run, in turn, for each group. A round of tasks is not divided.
    #[must_use]
    pub(super) fn runs_of_groups(&self) -> Vec<Vec<Until>> {
        let runs = self.runs();
        let round = runs.len() / usize::try_from(self.repeat).unwrap_or(usize::MAX).max(1);
        let of = |group: u64| {
            let begin = u128::from(self.repeat) * u128::from(group) / u128::from(self.groups);
            usize::try_from(begin).unwrap_or(usize::MAX) * round
        };
        (0..self.groups).map(|group| runs[of(group)..of(group + 1)].to_vec()).collect()
    }

    /// What ends each run, in turn.
    #[must_use]
    pub(super) fn runs(&self) -> Vec<Until> {
        let round: Vec<Until> = match (&self.task, self.duration_ns) {
            (Some(task), _) => task.cpu_ns.iter().map(|cpu| Until::Ran(*cpu)).collect(),
            (None, duration) => duration.into_iter().map(Until::Elapsed).collect(),
        };
        let repeat = usize::try_from(self.repeat).unwrap_or(usize::MAX);
        std::iter::repeat_n(round, repeat).flatten().collect()
    }

    /// How many jumps a run may see.
    #[must_use]
    pub(super) fn room(&self) -> usize {
        let most = |duration: Nanos| usize::try_from(duration / self.threshold_ns + 2);
        // Jumps do not overlap, so that a duration bounds their number; a task has no such bound.
        self.duration_ns.and_then(|duration| most(duration).ok()).unwrap_or(TASK_ROOM)
    }

    /// How long the group is idle before each run at least.
    #[must_use]
    pub(super) fn idle(&self) -> Nanos {
        self.idle_ns.unwrap_or_else(|| {
            let owed = self.quota_ns.map_or(0, |quota| LONGEST_TICK.div_ceil(quota));
            self.period_ns.saturating_mul(owed + 1)
        })
    }

    /// What the rows call the function.
    #[must_use]
    pub(super) fn function(&self) -> &'static str {
        if self.task.is_some() { "task" } else { "probe" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"period_ns": 20000000, "quota_ns": 1450000, "duration_ns": 1000000000,
        "repeat": 3, "out": "/tmp/x", "run": "r"}"#;

    fn with(changes: &[(&str, &str)]) -> Result<Config, ProbeError> {
        let mut json: serde_json::Value = serde_json::from_str(GOOD).unwrap();
        for (key, value) in changes {
            json[key] = serde_json::from_str(value).unwrap();
        }
        Config::from_json(&json.to_string())
    }

    #[test]
    fn defaults_are_those_of_the_paper() {
        let config = with(&[]).unwrap();
        assert_eq!((config.threshold_ns, config.burst_ns), (500_000, 0));
        assert_eq!(config.runs(), [Until::Elapsed(1_000_000_000); 3]);
        assert_eq!(config.room(), 2_002);
        // 10 ms owed at 1.45 ms a period: 7 periods, and one more.
        assert_eq!(config.idle(), 8 * 20_000_000);
    }

    #[test]
    fn tasks_are_gone_through_in_turn() {
        let config =
            with(&[("duration_ns", "null"), ("task", r#"{"cpu_ns": [5, 7]}"#), ("repeat", "2")])
                .unwrap();
        let runs = [5, 7, 5, 7].map(Until::Ran);
        assert_eq!(config.runs(), runs);
        assert_eq!(config.function(), "task");
        assert_eq!(config.runs_of_groups(), [config.runs()]);
    }

    #[test]
    fn groups_share_the_runs_and_no_round_is_divided() {
        let task = [("duration_ns", "null"), ("task", r#"{"cpu_ns": [5, 7]}"#), ("repeat", "3")];
        let config = with(&[&task[..], &[("groups", "2")]].concat()).unwrap();
        let lengths: Vec<_> = config.runs_of_groups().iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 4]);
        assert_eq!(config.runs_of_groups().concat(), config.runs());
        assert!(with(&[("groups", "4")]).unwrap_err().to_string().contains("groups"));
        assert!(with(&[("groups", "0")]).is_err());
    }

    #[test]
    fn what_cannot_be_is_told() {
        let told = |changes: &[(&str, &str)]| with(changes).unwrap_err().to_string();
        assert!(told(&[("duration_ns", "null")]).contains("either duration_ns or task"));
        assert!(told(&[("task", r#"{"cpu_ns": [1]}"#)]).contains("exclude each other"));
        assert!(told(&[("repeat", "0")]).contains("repeat is 0"));
        assert!(told(&[("threshold_ns", "999")]).contains("threshold_ns"));
        assert!(told(&[("quota_ns", "999000")]).contains("below the 1000 us"));
        assert!(told(&[("period_ns", "999000")]).contains("1 ms to 1 s"));
        assert!(told(&[("burst_ns", "2000000")]).contains("burst"));
        assert!(told(&[("quota_ns", "null"), ("burst_ns", "1000")]).contains("needs quota_ns"));
        assert!(told(&[("wrong", "1")]).contains("wrong"));
        let endless = [("duration_ns", "100000000000"), ("threshold_ns", "1000")];
        assert!(told(&endless).contains("4 million"));
    }
}
