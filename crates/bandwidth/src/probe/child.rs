//! The process of the probe, and how the process that started it talks to it.
//!
//! On standard input comes one line of JSON, [`Setup`]; one line of JSON answers it. Then come
//! orders of three numbers each (what ends the run, how much, the threshold), and each is answered
//! by numbers: those of [`Run`], and its jumps. Numbers are 64 bits, little endian: little work, for
//! all that the process does outside of its loop counts against its quota too.

use std::fs::{self, File};
use std::io::{self, BufRead, Read, Write};
use std::path::PathBuf;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use serde::{Deserialize, Serialize};

use super::ProbeError;
use super::watch::{Jump, Steps, Until, Watched, cpu_time, watch};
use crate::Nanos;
use crate::cgroup::Throttling;

const WORD: usize = 8;
const ORDER: usize = 3;
const ANSWER: usize = 16;
/// Stands for a number that was not measured.
const NONE: u64 = u64::MAX;

/// What the process is told before its first run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    /// The process that it must not outlive; `None`: its standard input's end is the only end.
    pub parent: Option<i32>,
    /// Files that it writes "0" to, to join its groups.
    pub join: Vec<PathBuf>,
    /// `cpu.stat` of its group.
    pub stat: Option<PathBuf>,
    /// The CPU that it stays on.
    pub cpu: Option<usize>,
    /// Room for jumps.
    pub room: usize,
}

/// How [`Setup`] went.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// It waits for orders.
    Ready,
    /// Why it cannot run, as a sentence.
    Failed(String),
}

/// What the process knows of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    /// When the loop began and ended.
    pub watched: Watched,
    /// CPU time from the start of the run to its end: the scheduler's account of the thread.
    pub cpu: Nanos,
    /// How much of it was in the kernel.
    pub system: Nanos,
    /// How often the scheduler took the CPU from the thread.
    pub involuntary_switches: u64,
    /// Page faults of the thread, minor and major.
    pub faults: u64,
    /// The smallest difference of two readings of the clock; `None`: there were none.
    pub least_step: Option<Nanos>,
    /// The median turn of the loop, jumps left out.
    pub median_step: Option<Nanos>,
    /// The 99th percentile of the loop's turns, jumps left out.
    pub high_step: Option<Nanos>,
    /// The kernel's counts from the start of the run to its end.
    pub throttling: Option<Throttling>,
    /// In the order in which they were seen.
    pub jumps: Vec<Jump>,
}

/// Serves orders from standard input until its end.
///
/// # Errors
/// Standard input or output is broken, or holds what nobody should send.
pub fn serve(mut input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let setup: Setup = serde_json::from_str(&line)?;
    let answer = match begin(&setup) {
        Ok(()) => Answer::Ready,
        Err(message) => Answer::Failed(message),
    };
    writeln!(output, "{}", serde_json::to_string(&answer)?)?;
    output.flush()?;
    if let Answer::Failed(_) = answer {
        return Ok(());
    }
    let stat = setup.stat.as_ref().map(File::open).transpose()?;
    let mut jumps = vec![(1, 1); setup.room];
    let mut steps = Steps::default();
    loop {
        let mut order = [0; ORDER * WORD];
        match input.read_exact(&mut order) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let [kind, amount, threshold] = words(&order);
        let until = if kind == 0 { Until::Elapsed(amount) } else { Until::Ran(amount) };
        // Cleared, not given back: its pages are there already.
        jumps.clear();
        steps.clear();
        let run = measure(until, threshold, &mut jumps, &mut steps, stat.as_ref())?;
        output.write_all(&encode(&run, &jumps))?;
        output.flush()?;
    }
}

fn begin(setup: &Setup) -> Result<(), String> {
    if let Some(parent) = setup.parent {
        set_pdeathsig(Signal::SIGKILL).map_err(|error| format!("prctl: {error}"))?;
        if getppid() != Pid::from_raw(parent) {
            return Err("the process that started it is gone".to_owned());
        }
    }
    for path in &setup.join {
        fs::File::options()
            .write(true)
            .open(path)
            .and_then(|mut file| file.write_all(b"0"))
            .map_err(|error| format!("cannot join by {}: {error}", path.display()))?;
    }
    if let Some(cpu) = setup.cpu {
        let mut set = CpuSet::new();
        set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|error| {
            let why = "there is no such CPU, or this process may not run on it";
            format!("cannot stay on CPU {cpu}: {why} ({error})")
        })?;
    }
    Ok(())
}

/// The counters are read just before the loop and just after it, in its own thread.
fn measure(
    until: Until,
    threshold: Nanos,
    jumps: &mut Vec<Jump>,
    steps: &mut Steps,
    stat: Option<&File>,
) -> io::Result<Run> {
    let usage_before = getrusage(UsageWho::RUSAGE_THREAD)?;
    let counts_before = stat.and_then(Throttling::read);
    let cpu_before = cpu_time();
    let watched = watch(until, threshold, jumps, steps);
    let cpu = cpu_time() - cpu_before;
    let counts = stat.and_then(Throttling::read);
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let switches = usage.involuntary_context_switches();
    let faults = usage.minor_page_faults() + usage.major_page_faults();
    let faults_before = usage_before.minor_page_faults() + usage_before.major_page_faults();
    Ok(Run {
        watched,
        cpu,
        system: (system(&usage) - system(&usage_before)).min(cpu),
        involuntary_switches: unsigned(switches - usage_before.involuntary_context_switches()),
        faults: unsigned(faults - faults_before),
        least_step: steps.least(),
        median_step: steps.median(),
        high_step: steps.high(),
        throttling: counts.zip(counts_before).map(|(after, before)| after.since(before)),
        jumps: Vec::new(),
    })
}

fn system(usage: &Usage) -> Nanos {
    let time = usage.system_time();
    unsigned(time.tv_sec()) * 1_000_000_000 + unsigned(time.tv_usec()) * 1_000
}

/// Counters of the kernel only grow.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Sends an order.
///
/// # Errors
/// The process is gone.
pub(super) fn order(mut to: impl Write, until: Until, threshold: Nanos) -> io::Result<()> {
    let (kind, amount) = match until {
        Until::Elapsed(duration) => (0, duration),
        Until::Ran(needed) => (1, needed),
    };
    to.write_all(&bytes(&[kind, amount, threshold]))?;
    to.flush()
}

fn encode(run: &Run, jumps: &[Jump]) -> Vec<u8> {
    let Watched { start, end, loops, full } = run.watched;
    let counts = run.throttling.unwrap_or(Throttling { periods: -1, ..Throttling::default() });
    let mut numbers = vec![
        start,
        end,
        loops,
        u64::from(full),
        run.cpu,
        run.system,
        run.involuntary_switches,
        run.faults,
        run.least_step.unwrap_or(NONE),
        run.median_step.unwrap_or(NONE),
        run.high_step.unwrap_or(NONE),
        u64::try_from(counts.periods).unwrap_or(NONE),
        unsigned(counts.count),
        unsigned(counts.ns),
        0,
        jumps.len() as u64,
    ];
    numbers.extend(jumps.iter().flat_map(|(end, gap)| [*end, *gap]));
    bytes(&numbers)
}

/// Reads the answer to an order.
///
/// # Errors
/// The process is gone.
pub(super) fn answer(mut from: impl Read) -> io::Result<Run> {
    let mut head = [0; ANSWER * WORD];
    from.read_exact(&mut head)?;
    let [
        start,
        end,
        loops,
        full,
        cpu,
        system,
        involuntary_switches,
        faults,
        least,
        median,
        high,
        periods,
        throttled,
        throttled_ns,
        _,
        count,
    ] = words(&head);
    let known = |number: u64| (number != NONE).then_some(number);
    let mut jumps = Vec::new();
    for _ in 0..count {
        let mut jump = [0; 2 * WORD];
        from.read_exact(&mut jump)?;
        let [end, gap] = words(&jump);
        jumps.push((end, gap));
    }
    Ok(Run {
        watched: Watched { start, end, loops, full: full != 0 },
        cpu,
        system,
        involuntary_switches,
        faults,
        least_step: known(least),
        median_step: known(median),
        high_step: known(high),
        throttling: known(periods).map(|periods| Throttling {
            periods: signed(periods),
            count: signed(throttled),
            ns: signed(throttled_ns),
        }),
        jumps,
    })
}

/// Reads how the setup went.
///
/// # Errors
/// It failed, or the process is gone.
pub(super) fn ready(mut from: impl BufRead) -> Result<(), ProbeError> {
    let mut line = String::new();
    from.read_line(&mut line).map_err(ProbeError::Ended)?;
    match serde_json::from_str(&line) {
        Ok(Answer::Ready) => Ok(()),
        Ok(Answer::Failed(message)) => Err(ProbeError::Child(message)),
        Err(error) => Err(ProbeError::Child(format!("it answered {line:?}: {error}"))),
    }
}

fn bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    std::array::from_fn(|place| {
        let mut word = [0; WORD];
        word.copy_from_slice(&bytes[place * WORD..(place + 1) * WORD]);
        u64::from_le_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(setup: &Setup, orders: &[(Until, Nanos)]) -> Vec<u8> {
        let mut input = serde_json::to_vec(setup).unwrap();
        input.push(b'\n');
        for (until, threshold) in orders {
            order(&mut input, *until, *threshold).unwrap();
        }
        let mut output = Vec::new();
        serve(input.as_slice(), &mut output).unwrap();
        output
    }

    #[test]
    fn orders_are_answered_in_turn() {
        let setup = Setup { room: 10_000, ..Setup::default() };
        let orders = [(Until::Elapsed(2_000_000), 500_000), (Until::Ran(1_000_000), 500_000)];
        let output = conversation(&setup, &orders);
        let mut from = output.as_slice();
        ready(&mut from).unwrap();
        let first = answer(&mut from).unwrap();
        assert!(first.watched.end - first.watched.start >= 2_000_000);
        assert!(first.cpu > 0 && first.system <= first.cpu && first.median_step.is_some());
        assert_eq!(first.throttling, None, "it was in no group");
        let second = answer(&mut from).unwrap();
        assert!(second.watched.start >= first.watched.end);
        assert!(from.is_empty());
    }

    #[test]
    fn a_setup_that_fails_is_told() {
        let setup = Setup { join: vec!["/absent/tasks".into()], ..Setup::default() };
        let output = conversation(&setup, &[]);
        let error = ready(output.as_slice()).unwrap_err().to_string();
        assert!(error.contains("/absent/tasks"), "{error}");
        let orphan = Setup { parent: Some(1_234_567), ..Setup::default() };
        assert!(ready(conversation(&orphan, &[]).as_slice()).is_err());
    }

    #[test]
    fn a_process_that_is_gone_is_told() {
        assert!(answer(&b""[..]).is_err());
        assert!(ready(&b""[..]).is_err());
    }
}
