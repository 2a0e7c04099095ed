//! What the kernel's scheduler does: how many threads run and wait for a CPU, how long they wait, and how often they
//! lose it, of the machine and of each group.
//!
//! Programs in the kernel count it. `uncia-bpf` brings them there, a program in a crate of its own, which
//! is asked for what they have counted at each sample.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Deserialize;
use uncia_cgroup::{Mounts, Version};
use uncia_record::Text;

use super::Monitor;
use super::programs::{GRACE, Running, wait_until};
use crate::groups::Watched;
use crate::samples::{Sample, Samples};

const PROGRAM: &str = "uncia-bpf";
/// Where the program is, if not beside this one or in the PATH.
const VARIABLE: &str = "UNCIA_BPF";
/// The kernel checks programs for some tenths of a second.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The last answer comes within this, or never. Until then other monitors are not to wait for one.
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks `uncia-bpf`.
pub(super) struct Schedule {
    watcher: Watcher,
    groups: Watched<()>,
    /// Whether groups are watched.
    has_patterns: bool,
    /// How long a sample waits for its answer.
    limit: Duration,
    /// Whether it was said that an answer is late.
    is_late: bool,
    /// When it was looked at last, in ns of the monotonic clock.
    before: Option<i64>,
    /// Sentences for the first sample.
    notes: Vec<String>,
    has_failed: bool,
}

/// The program, and the lines that it prints.
struct Watcher {
    running: Running,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
    /// Whether it was asked what it has not answered yet.
    is_owing: bool,
}

/// A line of the program.
#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum State {
    Started,
    Unsupported { message: String },
    Error { message: String },
}

/// What it counted between two looks.
#[derive(Deserialize)]
struct Look {
    now: i64,
    cpu_ns: i64,
    lost: u64,
    events: u64,
    groups: Vec<Growth>,
}

/// What it counted of a group alone; times in ns.
#[derive(Deserialize)]
struct Growth {
    path: Option<String>,
    /// Whether it may have been within any other: nobody knows its path.
    is_gone: bool,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Default, Deserialize)]
struct Counts {
    on_cpu_ns: u64,
    queued_ns: u64,
    waits: u64,
    waited_ns: u64,
    involuntary: u64,
    bins: Vec<(u64, u64)>,
}

/// What was counted of a group and of those within.
#[derive(Default)]
struct Sum {
    counts: Counts,
    bins: BTreeMap<u64, u64>,
}

impl Schedule {
    pub(super) fn new(patterns: &[String], interval_ns: i64) -> Result<Self, String> {
        let mounts = Mounts::read().map_err(|error| error.to_string())?;
        let mut mounted = mounts.mounted();
        let tree = mounted.find(|(version, ..)| *version == Version::V2).map(|(.., mount)| mount);
        let mut command = Command::new(program()?);
        command.arg("schedule");
        if let Some(tree) = tree {
            command.arg("--tree").arg(tree);
        }
        let mut notes = Vec::new();
        if tree.is_none() && !patterns.is_empty() {
            notes.push(
                "there are no rows of groups, since no tree of version 2 is mounted".to_owned(),
            );
        }
        let mut groups = Watched::new(patterns)?;
        groups.search_only(Some(Version::V2), &[]);
        let watcher = Watcher::start(&mut command)?;
        let line = watcher.line(START_TIMEOUT)?;
        match serde_json::from_str(&line) {
            Ok(State::Started) => {}
            Ok(State::Unsupported { message } | State::Error { message }) => return Err(message),
            Err(_) => return Err(format!("{} is another program", watcher.running.name)),
        }
        let limit = Duration::from_nanos(interval_ns.unsigned_abs()).min(LAST_TIMEOUT);
        let has_patterns = !patterns.is_empty();
        Ok(Self {
            watcher,
            groups,
            has_patterns,
            limit,
            is_late: false,
            before: None,
            notes,
            has_failed: false,
        })
    }

    /// Adds what was counted since the last look.
    fn add(&mut self, look: &Look, samples: &mut Samples) {
        samples.programs_cpu += look.cpu_ns;
        samples.lost += look.lost;
        // Of those that have ended since, the answer still has what they did.
        let mut names = self.names();
        samples.warnings.extend(self.groups.look(|_, _| Some(())));
        names.extend(self.names());
        let before = self.before.replace(look.now);
        // Of the first look the beginning is not known.
        let Some(interval) = before.map(|before| look.now - before).filter(|it| *it > 0) else {
            return;
        };
        if self.has_patterns {
            let gone = look.groups.iter().filter(|it| it.is_gone);
            samples.lost += gone.map(|it| it.counts.waits.max(1)).sum::<u64>();
        }
        let mut machine = Sum::default();
        for growth in &look.groups {
            machine.add(&growth.counts);
        }
        let at = Moment { now: look.now, interval };
        at.push(None, "schedule.events_count", look.events as f64, samples);
        at.push_all(None, machine, samples);
        let paths = || look.groups.iter().filter_map(|it| Some((it, it.path.as_deref()?)));
        // The program looks more often, so it may have seen groups that were not here at any sample.
        for (_, path) in paths() {
            for above in Path::new(path).ancestors().filter_map(Path::to_str) {
                if !names.contains(above) && self.groups.has_named(above) {
                    names.insert(above.into());
                }
            }
        }
        for name in &names {
            let mut sum = Sum::default();
            let within = paths().filter(|(_, path)| is_within(path, name));
            within.for_each(|(growth, _)| sum.add(&growth.counts));
            at.push_all(Some(name), sum, samples);
        }
    }

    /// The groups that are watched.
    fn names(&mut self) -> BTreeSet<Text> {
        self.groups.iter_mut().map(|(name, ())| name.clone()).collect()
    }

    /// Adds what it answers within a time. A late answer is that of a later sample, of the time since the one before.
    fn ask(&mut self, limit: Duration, samples: &mut Samples) {
        match self.watcher.look(limit) {
            Ok(Some(look)) => self.add(&look, samples),
            Ok(None) => {
                samples.lost += 1;
                if !std::mem::replace(&mut self.is_late, true) {
                    let (name, ms) = (&self.watcher.running.name, limit.as_secs_f64() * 1e3);
                    samples.warnings.push(format!(
                        "{name} did not answer within {ms} ms: what it counts comes with a later sample"
                    ));
                }
            }
            Err(why) => self.fail(&why, samples),
        }
    }

    fn fail(&mut self, why: &str, samples: &mut Samples) {
        self.has_failed = true;
        self.watcher.end();
        samples.lost += 1;
        samples.warnings.push(format!("{why}; rows after that are missing"));
    }
}

impl Monitor for Schedule {
    fn sample(&mut self, samples: &mut Samples) {
        samples.warnings.append(&mut self.notes);
        if self.has_failed {
            samples.lost += 1;
            return;
        }
        // Whoever is late already is not waited for again.
        let limit = if self.watcher.is_owing { Duration::ZERO } else { self.limit };
        self.ask(limit, samples);
    }

    fn finish(&mut self, samples: &mut Samples) {
        samples.warnings.append(&mut self.notes);
        if !self.has_failed && self.watcher.is_owing {
            self.ask(LAST_TIMEOUT, samples);
        }
        if self.has_failed {
            samples.lost += 1;
        } else if self.watcher.is_owing {
            let name = &self.watcher.running.name;
            let why = format!("{name} did not answer within {} s", LAST_TIMEOUT.as_secs());
            self.fail(&why, samples);
        } else {
            self.ask(LAST_TIMEOUT, samples);
        }
        self.watcher.end();
    }
}

impl Watcher {
    fn start(command: &mut Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running::start(command)?;
        let (stdin, stdout) = (running.child.stdin.take(), running.child.stdout.take());
        let (sender, lines) = sync_channel(1);
        let reader = thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|it| BufReader::new(it).lines());
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { running, stdin, lines, reader: Some(reader), is_owing: false })
    }

    fn line(&self, limit: Duration) -> Result<String, String> {
        let name = &self.running.name;
        self.lines.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                format!("{name} did not answer within {} s", limit.as_secs())
            }
            RecvTimeoutError::Disconnected => format!("{name} has ended early"),
        })
    }

    /// What it answers within a time, to this or to what it was asked before; `None`: nothing yet.
    fn look(&mut self, limit: Duration) -> Result<Option<Look>, String> {
        let name = &self.running.name;
        if !self.is_owing {
            let asked = self.stdin.as_mut().map(|stdin| stdin.write_all(b"\n"));
            if !matches!(asked, Some(Ok(()))) {
                return Err(format!("{name} has ended early"));
            }
            self.is_owing = true;
        }
        let line = match self.lines.recv_timeout(limit) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => return Err(format!("{name} has ended early")),
        };
        self.is_owing = false;
        serde_json::from_str(&line).map(Some).map_err(|error| match serde_json::from_str(&line) {
            Ok(State::Error { message }) => message,
            _ => format!("{name} gave what is no look ({error})"),
        })
    }

    /// It ends with its input.
    fn end(&mut self) {
        self.stdin = None;
        wait_until(GRACE, || self.running.has_ended());
        self.running.end();
        if let Some(reader) = self.reader.take() {
            // One that waits to pass a line on ends when nobody can take it.
            self.lines = sync_channel(1).1;
            let _ = reader.join();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.end();
    }
}

/// The moment of a look, in ns of the monotonic clock, and the time since the one before.
#[derive(Clone, Copy)]
struct Moment {
    now: i64,
    interval: i64,
}

impl Moment {
    fn push(self, group: Option<&Text>, counter: &str, value: f64, samples: &mut Samples) {
        let group = group.cloned();
        let counter = counter.into();
        let (interval, at) = (Some(self.interval), Some(self.now));
        samples.rows.push(Sample { counter, group, cpu: None, interval, value, at });
    }

    fn push_all(self, group: Option<&Text>, sum: Sum, samples: &mut Samples) {
        let Sum { counts, bins } = sum;
        let time = self.interval as f64;
        let running = counts.on_cpu_ns as f64 / time;
        let runnable = (counts.on_cpu_ns + counts.queued_ns) as f64 / time;
        for (counter, value) in
            [("schedule.running_threads", running), ("schedule.runnable_threads", runnable)]
        {
            let (group, counter, at) = (group.cloned(), counter.into(), Some(self.now));
            samples.rows.push(Sample { counter, group, cpu: None, interval: None, value, at });
        }
        for (counter, value) in [
            ("schedule.cpu_ns", counts.on_cpu_ns),
            ("schedule.wait_ns", counts.waited_ns),
            ("schedule.wait_count", counts.waits),
            ("schedule.involuntary_switches_count", counts.involuntary),
        ] {
            self.push(group, counter, value as f64, samples);
        }
        for (upper, count) in bins {
            let counter = format!("schedule.wait_within_{upper}ns_count");
            self.push(group, &counter, count as f64, samples);
        }
    }
}

impl Sum {
    fn add(&mut self, more: &Counts) {
        self.counts.on_cpu_ns += more.on_cpu_ns;
        self.counts.queued_ns += more.queued_ns;
        self.counts.waits += more.waits;
        self.counts.waited_ns += more.waited_ns;
        self.counts.involuntary += more.involuntary;
        for (upper, count) in &more.bins {
            *self.bins.entry(*upper).or_default() += count;
        }
    }
}

/// Whether a group is this one, or below it.
fn is_within(path: &str, group: &str) -> bool {
    let group = group.trim_end_matches('/');
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The program: the one that is named, else that beside this one, else that in the PATH.
fn program() -> Result<PathBuf, String> {
    if let Some(path) = env::var_os(VARIABLE).map(PathBuf::from) {
        let named = path.display().to_string();
        return path
            .is_file()
            .then_some(path)
            .ok_or_else(|| format!("{VARIABLE} names {named}, which is not there"));
    }
    let beside = env::current_exe().ok().and_then(|path| Some(path.parent()?.join(PROGRAM)));
    let paths = env::var_os("PATH").unwrap_or_default();
    let in_paths = env::split_paths(&paths).map(|folder| folder.join(PROGRAM));
    beside.into_iter().chain(in_paths).find(|path| path.is_file()).ok_or_else(|| {
        format!("there is no {PROGRAM}: build it with \"make bpf\" in a checkout of Uncia")
    })
}

#[cfg(test)]
mod tests;
