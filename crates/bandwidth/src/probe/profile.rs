//! Runs of the probe, one after the other.

use std::io::BufReader;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use serde::Serialize;

use super::child::{self, Run, Setup};
use super::rows::{BASELINE, PROFILE, Tables};
use super::watch::Until;
use super::{Config, ProbeError};
use crate::Nanos;
use crate::cgroup::{Group, Place, sweep};

/// Often enough for a progress bar to look alive.
const PROGRESS: Duration = Duration::from_millis(200);

/// What is told while it goes on.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The group is there, and the tables are begun.
    Started { group: String, epoch_unix_ns: i64, runs: usize, swept: usize },
    /// What the probe saw without a quota.
    Baseline(Baseline),
    Progress {
        /// Runs that are over, and of how many.
        completed: usize,
        runs: usize,
        throttles: u64,
    },
    Done {
        completed: usize,
        runs: usize,
        throttles: u64,
        /// Ended by a signal before all runs were made.
        interrupted: bool,
        baseline: Option<Baseline>,
    },
}

/// The probe without a quota: how fine it sees, and how often it sees what is no throttle.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Baseline {
    pub duration_ns: Nanos,
    pub cpu_ns: Nanos,
    /// Smallest difference of two readings of the clock, one after the other.
    pub clock_step_ns: Option<Nanos>,
    pub loop_p50_ns: Option<Nanos>,
    pub loop_p99_ns: Option<Nanos>,
    /// Jumps that would have been taken for throttles.
    pub jumps: u64,
    pub jump_ns: Nanos,
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
    let place = Place::find(config.unified)?;
    let swept = sweep(&place)?;
    let group = Group::create(&place)?;
    let bandwidth = config.bandwidth();
    // What the kernel refuses is told before any table is made; then the baseline has no limit.
    if let Some(bandwidth) = &bandwidth {
        group.limit(bandwidth)?;
    }
    let share = bandwidth.map(|bandwidth| bandwidth.micro_vcpu());
    let mut tables =
        Tables::create(&config.out, &config.run, config.function(), group.folder(), share)?;
    on_event(&Event::Started {
        group: group.folder().display().to_string(),
        epoch_unix_ns: tables.epoch.unix_ns(),
        runs: config.runs().len(),
        swept,
    });
    let measured = measure(config, probe, &group, &mut tables, stop, on_event);
    let closed = tables.close();
    let removed = group.remove();
    measured?;
    closed?;
    Ok(removed?)
}

fn measure(
    config: &Config,
    command: &mut Command,
    group: &Group,
    tables: &mut Tables,
    stop: &Stop,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(), ProbeError> {
    let runs = config.runs();
    let mut setup = Setup {
        parent: Some(getpid().as_raw()),
        // Without a group at first: the baseline has no quota.
        join: Vec::new(),
        stat: None,
        cpu: config.cpu,
        room: config.room(),
    };
    let (mut completed, mut throttles, mut baseline) = (0, 0, None);
    let result = (|| {
        if config.baseline_ns > 0 {
            let room = config.baseline_ns / config.threshold_ns + 2;
            setup.room = setup.room.max(usize::try_from(room).unwrap_or(usize::MAX));
            let mut probe = Probe::start(command, &setup, stop)?;
            let run = probe.run(Until::Elapsed(config.baseline_ns), config.threshold_ns)?;
            tables.add(&run, BASELINE)?;
            let found = Baseline::of(&run);
            on_event(&Event::Baseline(found));
            baseline = Some(found);
        }
        setup.join = group.join_files();
        setup.stat = Some(group.counters().stat().to_owned());
        let mut probe = Probe::start(command, &setup, stop)?;
        let mut random = ChaCha12Rng::seed_from_u64(config.seed);
        let mut told = Instant::now();
        for until in &runs {
            let phase = random.random_range(0..config.period_ns);
            stop.sleep(Duration::from_nanos(config.idle().saturating_add(phase)));
            if stop.is_stopped() {
                break;
            }
            tables.add_reading(&group.counters().read()?)?;
            let run = probe.run(*until, config.threshold_ns)?;
            tables.add_reading(&group.counters().read()?)?;
            tables.add(&run, PROFILE)?;
            completed += 1;
            throttles += run.jumps.len() as u64;
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                on_event(&Event::Progress { completed, runs: runs.len(), throttles });
            }
        }
        Ok(())
    })();
    let interrupted = stop.is_stopped();
    let done = Event::Done { completed, runs: runs.len(), throttles, interrupted, baseline };
    match result {
        // The probe was killed because the profile was to end.
        Err(ProbeError::Ended(_) | ProbeError::Child(_)) if interrupted => {}
        other => other?,
    }
    on_event(&done);
    Ok(())
}
