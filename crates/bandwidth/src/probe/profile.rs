//! Runs of the probe, one after the other.

use std::io::BufReader;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::child::{self, Run, Setup};
use super::rows::{BASELINE, PROFILE, Tables};
use super::watch::Until;
use super::{Config, ProbeError};
use crate::Nanos;
use crate::cgroup::{Controller, Error, Group, Layout, Mounts, leftovers, own_name};

/// Often enough for a progress bar to look alive.
const PROGRESS: Duration = Duration::from_millis(200);

/// What is told while it goes on.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The first group is there, and the tables are begun.
    Started {
        /// The path of the first group.
        group: String,
        /// The Unix time from which the tables count, in ns.
        epoch_unix_ns: i64,
        /// The same moment on the monotonic clock, in ns.
        epoch_monotonic_ns: Nanos,
        /// Runs that will be made.
        runs: usize,
        /// Groups of earlier profiles that were still there and are removed.
        swept: usize,
    },
    /// What the probe saw without a quota.
    Baseline(Baseline),
    /// How far it is.
    Progress {
        /// Runs that are over, and of how many.
        completed: usize,
        /// Runs that will be made.
        runs: usize,
        /// Jumps seen in all runs so far.
        throttles: u64,
    },
    /// All runs are over, or it was stopped.
    Done {
        /// Runs that are over.
        completed: usize,
        /// Runs that were to be made.
        runs: usize,
        /// Jumps seen in all runs.
        throttles: u64,
        /// Ended by a signal before all runs were made.
        interrupted: bool,
        /// What the probe saw without a quota; `None` if it was stopped before.
        baseline: Option<Baseline>,
    },
}

/// The probe without a quota: how fine it sees, and how often it sees what is no throttle.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Baseline {
    /// How long the probe watched, in ns.
    pub duration_ns: Nanos,
    /// CPU time it used, in ns.
    pub cpu_ns: Nanos,
    /// Smallest difference of two readings of the clock, one after the other.
    pub clock_step_ns: Option<Nanos>,
    /// The median turn of the loop, in ns; `None`: there was no turn.
    pub loop_p50_ns: Option<Nanos>,
    /// The 99th percentile of the loop's turns, in ns; `None`: there was no turn.
    pub loop_p99_ns: Option<Nanos>,
    /// Jumps that would have been taken for throttles.
    pub jumps: u64,
    /// How long these jumps are together, in ns.
    pub jump_ns: Nanos,
    /// How often the scheduler took the CPU from the probe.
    pub involuntary_switches: u64,
}

impl Baseline {
    fn of(run: &Run) -> Self {
        Self {
            duration_ns: run.watched.end - run.watched.start,
            cpu_ns: run.cpu,
            clock_step_ns: run.least_step,
            loop_p50_ns: run.median_step,
            loop_p99_ns: run.high_step,
            jumps: run.jumps.len() as u64,
            jump_ns: run.jumps.iter().map(|(_, gap)| gap).sum(),
            involuntary_switches: run.involuntary_switches,
        }
    }
}

/// Ends a profile early, from another thread.
#[derive(Debug, Default)]
pub struct Stop {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    /// The process of the probe, while it may be killed.
    probe: Option<Pid>,
}

impl Stop {
    /// Ends the run that goes on, which is lost, and begins no other.
    pub fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        if let Some(probe) = state.probe {
            // It may have ended meanwhile; it has not been waited for, so the number is still its.
            let _ = kill(probe, Signal::SIGKILL);
        }
        self.changed.notify_all();
    }

    /// Whether [`Stop::stop`] was called.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep(&self, time: Duration) {
        let waiting = self.changed.wait_timeout_while(self.lock(), time, |state| !state.stopped);
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }

    fn watch_over(&self, probe: Option<Pid>) {
        self.lock().probe = probe;
    }
}

/// The process of the probe.
struct Probe<'a> {
    process: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    stop: &'a Stop,
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        // First nobody else may signal the number, then it may be given to another process.
        self.stop.watch_over(None);
        drop(self.orders.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl<'a> Probe<'a> {
    fn start(command: &mut Command, setup: &Setup, stop: &'a Stop) -> Result<Self, ProbeError> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(ProbeError::Start)?;
        let pid = i32::try_from(process.id()).map(Pid::from_raw).ok();
        let (orders, answers) = (process.stdin.take(), process.stdout.take());
        let gone = || ProbeError::Child("it has no pipes".to_owned());
        let answers = BufReader::new(answers.ok_or_else(gone)?);
        let mut probe = Self { process, orders, answers, stop };
        stop.watch_over(pid);
        let mut line =
            serde_json::to_vec(setup).map_err(|error| ProbeError::Config(error.to_string()))?;
        line.push(b'\n');
        let orders = probe.orders.as_mut().ok_or_else(gone)?;
        std::io::Write::write_all(orders, &line).map_err(ProbeError::Ended)?;
        child::ready(&mut probe.answers)?;
        Ok(probe)
    }

    fn run(&mut self, until: Until, threshold: Nanos) -> Result<Run, ProbeError> {
        let orders = self.orders.as_mut().ok_or_else(|| ProbeError::Child("closed".to_owned()))?;
        child::order(orders, until, threshold).map_err(ProbeError::Ended)?;
        let run = child::answer(&mut self.answers).map_err(ProbeError::Ended)?;
        if run.watched.full {
            return Err(ProbeError::Full(run.jumps.len()));
        }
        Ok(run)
    }
}

/// Makes a profile: the tables `invocations`, `spans` and `machine` in the folder of the
/// configuration.
///
/// `probe` is the command that runs [`child::serve`]. The group is removed on every path; of a
/// profile that was killed, by the next one.
///
/// # Errors
/// There is no group, the probe does not begin or ends early, or the tables cannot be written. What
/// was measured before is kept.
pub fn run(
    config: &Config,
    probe: &mut Command,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(), ProbeError> {
    // What cannot be removed is another user's, and does not keep this one from its own.
    let swept = leftovers(true)?.iter().filter(|it| matches!(it.cleared, Some(Ok(())))).count();
    let wanted = [Controller::Cpu, Controller::CpuAccounting];
    let layout = Mounts::read()?.discover(&own_name(), &wanted, config.unified);
    let layout = layout.ok_or(Error::NotMounted(Controller::Cpu.name()))?;
    let profiled = layout
        .require(Controller::Cpu)
        .map_err(ProbeError::from)
        .and_then(|()| profile(config, &layout, swept, probe, stop, on_event));
    let removed = layout.remove();
    profiled?;
    Ok(removed?)
}

fn profile(
    config: &Config,
    layout: &Layout,
    swept: usize,
    probe: &mut Command,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(), ProbeError> {
    let mut groups = Groups { layout, config, made: 0 };
    // What the kernel refuses is told before any table is made.
    let first = groups.make()?;
    let share = config.bandwidth().map(|bandwidth| bandwidth.micro_vcpu());
    let folder = folder(&first);
    let mut tables = Tables::create(&config.out, &config.run, config.function(), folder, share)?;
    on_event(&Event::Started {
        group: folder.display().to_string(),
        epoch_unix_ns: tables.epoch.unix_ns(),
        epoch_monotonic_ns: tables.epoch_monotonic,
        runs: config.runs().len(),
        swept,
    });
    let mut session = Session {
        config,
        command: probe,
        stop,
        tables: &mut tables,
        on_event,
        random: ChaCha12Rng::seed_from_u64(config.seed),
        told: Instant::now(),
        completed: 0,
        throttles: 0,
        baseline: None,
    };
    let measured = session.measure(groups, first);
    let closed = tables.close();
    measured?;
    Ok(closed?)
}

/// Makes groups with the configuration's limit.
struct Groups<'a> {
    layout: &'a Layout,
    config: &'a Config,
    made: u32,
}

impl Groups<'_> {
    fn make(&mut self) -> Result<Group, ProbeError> {
        self.made += 1;
        let group = Group::unlimited(self.layout, &self.made.to_string())?;
        if let Some(bandwidth) = self.config.bandwidth() {
            group.set_bandwidth(&bandwidth)?;
        }
        Ok(group)
    }
}

fn folder(group: &Group) -> &Path {
    group.folder(Controller::Cpu).unwrap_or(Path::new(""))
}

/// The runs of a profile.
struct Session<'a> {
    config: &'a Config,
    command: &'a mut Command,
    stop: &'a Stop,
    tables: &'a mut Tables,
    on_event: &'a mut dyn FnMut(&Event),
    random: ChaCha12Rng,
    told: Instant,
    completed: usize,
    throttles: u64,
    baseline: Option<Baseline>,
}

impl Session<'_> {
    fn measure(&mut self, groups: Groups, first: Group) -> Result<(), ProbeError> {
        let result = self.all(groups, first);
        let interrupted = self.stop.is_stopped();
        match result {
            // The probe was killed because the profile was to end.
            Err(ProbeError::Ended(_) | ProbeError::Child(_)) if interrupted => {}
            other => other?,
        }
        (self.on_event)(&Event::Done {
            completed: self.completed,
            runs: self.config.runs().len(),
            throttles: self.throttles,
            interrupted,
            baseline: self.baseline,
        });
        Ok(())
    }

    fn all(&mut self, mut groups: Groups, first: Group) -> Result<(), ProbeError> {
        if self.config.baseline_ns > 0 {
            self.watch_without_a_quota()?;
        }
        let mut group = Some(first);
        for runs in self.config.runs_of_groups() {
            let group = match group.take() {
                Some(group) => group,
                None => groups.make()?,
            };
            self.tables.enter(folder(&group));
            // Whether or not this fails, the group is removed, and what comes first is told.
            let result = self.in_group(&group, &runs);
            let removed = group.remove();
            result?;
            removed.map_err(ProbeError::Remove)?;
            if self.stop.is_stopped() {
                break;
            }
        }
        Ok(())
    }

    fn setup(&self) -> Setup {
        Setup {
            parent: Some(getpid().as_raw()),
            cpu: self.config.cpu,
            room: self.config.room(),
            ..Setup::default()
        }
    }

    fn watch_without_a_quota(&mut self) -> Result<(), ProbeError> {
        let (duration, threshold) = (self.config.baseline_ns, self.config.threshold_ns);
        let room = usize::try_from(duration / threshold + 2).unwrap_or(usize::MAX);
        let setup = Setup { room, ..self.setup() };
        let mut probe = Probe::start(self.command, &setup, self.stop)?;
        let run = probe.run(Until::Elapsed(duration), threshold)?;
        self.tables.add(&run, BASELINE)?;
        let found = Baseline::of(&run);
        (self.on_event)(&Event::Baseline(found));
        self.baseline = Some(found);
        Ok(())
    }

    fn in_group(&mut self, group: &Group, runs: &[Until]) -> Result<(), ProbeError> {
        let setup = Setup { join: group.join_files(), stat: group.stat_file(), ..self.setup() };
        let counters = group.counters();
        let mut probe = Probe::start(self.command, &setup, self.stop)?;
        for until in runs {
            let phase = self.random.random_range(0..self.config.period_ns);
            self.stop.sleep(Duration::from_nanos(self.config.idle().saturating_add(phase)));
            if self.stop.is_stopped() {
                break;
            }
            self.tables.add_readings(&counters.read_all())?;
            let run = probe.run(*until, self.config.threshold_ns)?;
            self.tables.add_readings(&counters.read_all())?;
            self.tables.add(&run, PROFILE)?;
            self.completed += 1;
            self.throttles += run.jumps.len() as u64;
            self.tell();
        }
        Ok(())
    }

    fn tell(&mut self) {
        if self.told.elapsed() >= PROGRESS {
            self.told = Instant::now();
            (self.on_event)(&Event::Progress {
                completed: self.completed,
                runs: self.config.runs().len(),
                throttles: self.throttles,
            });
        }
    }
}
