//! What is asked for: monitors, how often, of which groups, and where rows go.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::MonitorError;

/// The shortest interval in ns: below it, reading takes a good part of the time.
pub const SHORTEST_INTERVAL_NS: i64 = 1_000_000;

/// Monitors of one process, and where their rows go.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file of the rows, which must not exist.
    pub out: PathBuf,
    /// The run that rows are of.
    #[serde(default)]
    pub run: Option<String>,
    /// Unix time in ns that times of rows are counted from.
    pub epoch_unix_ns: i64,
    /// For how long to watch, in ns; without it, until asked to stop.
    #[serde(default)]
    pub duration_ns: Option<i64>,
    /// Patterns of the groups to watch, as paths in the trees: `/docker/*`.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Processes that are not background, with their descendants.
    #[serde(default)]
    pub ours: Vec<i32>,
    /// What to watch.
    pub monitors: Vec<Asked>,
}

/// A monitor that is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// Which.
    pub monitor: Kind,
    /// The time between samples in ns.
    #[serde(default = "default_interval_ns")]
    pub interval_ns: i64,
    /// Groups of this monitor, instead of those of all.
    #[serde(default)]
    pub groups: Option<Vec<String>>,
}

/// The monitors by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// How busy and how noisy the machine is.
    Machine,
    /// What each control group used.
    Cgroup,
    /// Pressure stall information of the machine and of each group.
    Pressure,
    /// Performance events of the machine and of each group, by CPU.
    Perf,
}

fn default_interval_ns() -> i64 {
    100_000_000
}

impl Config {
    /// Reads a configuration from JSON, and checks it.
    ///
    /// # Errors
    /// A sentence: it is none, or asks for what cannot be.
    pub fn from_json(text: &str) -> Result<Self, MonitorError> {
        let config: Self = serde_json::from_str(text).map_err(|error| {
            MonitorError::Config(format!("the configuration is wrong: {error}"))
        })?;
        config.check().map_err(MonitorError::Config)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.monitors.is_empty() {
            return Err("no monitor is named".to_owned());
        }
        if let Some(asked) = self.monitors.iter().find(|it| it.interval_ns < SHORTEST_INTERVAL_NS) {
            let ms = asked.interval_ns as f64 / 1e6;
            return Err(format!("an interval of {ms} ms is too short: it is at least 1 ms"));
        }
        let patterns = self.monitors.iter().filter_map(|it| it.groups.as_ref()).flatten();
        for pattern in self.groups.iter().chain(patterns) {
            if !pattern.starts_with('/') || pattern.split('/').any(|it| it == "..") {
                return Err(format!(
                    "{pattern:?} names no control group: a path in the tree, such as /docker/*"
                ));
            }
        }
        Ok(())
    }
}
