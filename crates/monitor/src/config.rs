//! What is asked for: monitors, how often, of which groups, and where rows go.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::MonitorError;
use crate::resctrl::Wanted;

/// The shortest interval in ns: below it, reading takes a good part of the time.
pub const SHORTEST_INTERVAL_NS: i64 = 1_000_000;
/// Of a program of bpftrace: what a pipe takes at once.
pub const MOST_PROGRAM_BYTES: usize = 60 * 1024;

/// Monitors of one process, and where their rows go.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file of the rows, which must not exist; `None`: they go to whoever is at the other end.
    #[serde(default)]
    pub out: Option<PathBuf>,
    /// The run that rows are of.
    #[serde(default)]
    pub run: Option<String>,
    /// What rows call this machine, if another one started the monitors.
    #[serde(default)]
    pub host: Option<String>,
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
    /// What rows call it, instead of its kind.
    #[serde(default)]
    pub name: Option<String>,
    /// The share of a CPU, from 0 to 1, that it may use; beyond, its interval becomes longer.
    #[serde(default)]
    pub budget: Option<f64>,
    /// Of `command`: the program that prints, and its arguments.
    #[serde(default)]
    pub command: Option<Vec<String>>,
    /// Of `command`: what it prints.
    #[serde(default)]
    pub format: Format,
    /// Of `command`: a program that is started at the beginning, and its arguments.
    #[serde(default)]
    pub start: Option<Vec<String>>,
    /// Of `command`: a program that is run after the end, and its arguments.
    #[serde(default)]
    pub after: Option<Vec<String>>,
    /// Of `bpftrace`: the text of the program.
    #[serde(default)]
    pub program: Option<String>,
    /// Of `bpftrace`: what sentences call the program.
    #[serde(default)]
    pub file: Option<String>,
    /// Of `resctrl`: where its file system is, if not where it is mounted.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// Of `resctrl`: limits of the groups.
    #[serde(default)]
    pub limits: Option<Wanted>,
}

impl Asked {
    /// What rows call it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_else(|| self.monitor.name())
    }
}

/// What a program prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// An object of JSON in each line.
    #[default]
    Json,
    /// What `perf stat -I` prints, for people, in CSV (`-x,`) or in JSON (`-j`).
    Perf,
    /// What `pqos` prints, for people or in CSV (`-u csv`).
    Pqos,
    /// What `blkparse` prints.
    Blkparse,
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
    /// Bytes, operations and waits of disks, by device and group.
    Block,
    /// How long threads run and wait for a CPU, of the machine and of each group.
    Schedule,
    /// How much of the last-level cache and of the memory's bandwidth is used.
    Resctrl,
    /// What any program prints.
    Command,
    /// What a program of bpftrace counts.
    Bpftrace,
}

impl Asked {
    fn check(&self) -> Result<(), String> {
        let name = self.name();
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || !name.bytes().all(fine) {
            return Err(format!("a monitor's name is letters, digits, _, - and ., not {name:?}"));
        }
        if let Some(budget) = self.budget.filter(|it| !(*it > 0.0 && *it <= 1.0)) {
            return Err(format!(
                "the budget of {name} is a share of a CPU above 0 and up to 1, not {budget}"
            ));
        }
        let scripts = self.start.is_some() || self.after.is_some();
        let mut programs = [&self.command, &self.start, &self.after].into_iter().flatten();
        if programs.any(Vec::is_empty) {
            return Err(format!("a program of {name} is empty"));
        }
        if self.monitor != Kind::Resctrl && (self.root.is_some() || self.limits.is_some()) {
            return Err(format!("root and limits are of the monitor resctrl, not of {name}"));
        }
        if let Some(limits) = &self.limits {
            limits.check()?;
        }
        let length = self.program.as_ref().map(String::len);
        match (length, self.monitor) {
            (None | Some(0), Kind::Bpftrace) => {
                return Err(format!("the monitor {name} has no program of bpftrace: file"));
            }
            (Some(length), Kind::Bpftrace) if length > MOST_PROGRAM_BYTES => {
                return Err(format!(
                    "the program of {name} has {length} bytes, and at most {MOST_PROGRAM_BYTES} are taken"
                ));
            }
            (Some(_), kind) if kind != Kind::Bpftrace => {
                return Err(format!("program is of the monitor bpftrace, not of {name}"));
            }
            _ => {}
        }
        match (&self.command, self.monitor) {
            (None, Kind::Command) if !scripts => {
                Err(format!("the monitor {name} runs nothing: give it command, start or after"))
            }
            (_, Kind::Command) => Ok(()),
            (None, _) if !scripts => Ok(()),
            _ => Err(format!("command, start and after are of the monitor command, not of {name}")),
        }
    }
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
        for asked in &self.monitors {
            asked.check()?;
            if asked.limits.is_some() && asked.groups.as_ref().unwrap_or(&self.groups).is_empty() {
                return Err(format!(
                    "the limits of {} are of no control group: name some by groups",
                    asked.name()
                ));
            }
        }
        let mut names: Vec<_> = self.monitors.iter().map(Asked::name).collect();
        names.sort_unstable();
        let mut pairs = names.iter().zip(names.iter().skip(1));
        if let Some((name, _)) = pairs.find(|(name, next)| name == next) {
            return Err(format!("two monitors are called {name}: give one another name"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_of_control_groups() {
        let check = |groups: &str, all: &str| {
            let text = format!(
                "{{\"epoch_unix_ns\": 0, {all} \"monitors\": [{{\"monitor\": \"resctrl\", {groups} \"limits\": {{\"ways\": 2}}}}]}}"
            );
            Config::from_json(&text)
        };
        let named = "\"groups\": [\"/a\"],";
        let none = "\"groups\": [],";
        assert!(check(named, "").is_ok() && check("", named).is_ok());
        for (groups, all) in [("", ""), (none, named)] {
            let sentence = check(groups, all).unwrap_err().to_string();
            assert!(sentence.contains("limits of resctrl are of no control group"), "{sentence}");
        }
    }
}
