//! What the kernel does to a group with a quota, simulated from event to event.
//!
//! Modelled are, by the functions of kernel/sched/fair.c:
//!
//! * the group's pool, its refills and its burst (`__refill_cfs_bandwidth_runtime`), the period timer,
//!   which goes on for one idle period and then stops (`do_sched_cfs_period_timer`), and the slack
//!   timer (`do_sched_cfs_slack_timer`): [`pool`];
//! * each CPU's local runtime, which it takes from the pool in slices and whose overrun is a debt
//!   (`account_cfs_rq_runtime`, `assign_cfs_rq_runtime`, `distribute_cfs_runtime`);
//! * accounting where the kernel accounts: at ticks of a busy CPU, at switches and when a thread
//!   falls asleep, not in between (`update_curr`); idle CPUs have no ticks: [`machine`];
//! * throttling of whole queues (to 6.17) and of single threads on their way to user mode (from 6.18);
//! * CFS and EEVDF among the threads of the group, and between the group and neighbours: [`class`].
//!
//! It is the only model of the kernel: predictions and inference ask it for many settings at a time,
//! with [`Setting::starts_ns`], [`Setting::kept_ns`] and [`Setting::remaining_ns`] as they want them.
//!
//! Not modelled: classes other than fair, delayed dequeueing (6.12), periodic load balancing, cgroups
//! within the group, capacity and frequency, and the kernel's own use of time beyond a delay.

mod class;
mod machine;
mod pool;
mod setting;
mod thread;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use class::Class;
pub use setting::{Setting, SettingError, Step, Throttling, Timer, Work};
pub use thread::Seen;

use machine::Machine;
use pool::Pool;
use thread::{FOREVER, Program, State, Task, Thread};

use crate::Nanos;

/// What came of a setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Probes, tasks or patterns, in the order in which they ended, thread by thread.
    pub seen: Vec<Seen>,
    /// Ticks that were simulated; an idle CPU has none.
    pub ticks: u64,
}

/// Simulates a setting. The same seed gives the same outcome on every machine.
///
/// Times in the outcome are ns on a clock on which ticks fall on whole ticks plus
/// `tick_offset_ns`; every run begins at a random time on it.
///
/// # Errors
/// The setting is wrong.
pub fn simulate(setting: &Setting, seed: u64) -> Result<Outcome, SettingError> {
    setting.check()?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut outcome = Outcome::default();
    match &setting.work {
        Work::Task { fresh, threshold_ns, .. } => {
            let mut tasks = Vec::new();
            for number in 0..setting.runs {
                tasks.push(task(setting, number, &mut random));
                if *fresh || number + 1 == setting.runs {
                    let program =
                        Program::Tasks { tasks: std::mem::take(&mut tasks), next: 0, rest: None };
                    let run =
                        Run { number: if *fresh { number } else { 0 }, threshold: *threshold_ns };
                    run.simulate(setting, vec![program], &mut random, &mut outcome);
                }
            }
        }
        Work::Probe { duration_ns, threshold_ns, threads } => {
            for number in 0..setting.runs {
                let programs = vec![Program::Until(signed(*duration_ns)); *threads];
                let run = Run { number, threshold: *threshold_ns };
                run.simulate(setting, programs, &mut random, &mut outcome);
            }
        }
        Work::Pattern { duration_ns, threads, threshold_ns } => {
            for number in 0..setting.runs {
                let end = signed(*duration_ns);
                let programs = threads.iter().map(|steps| pattern(steps, end)).collect();
                let run = Run { number, threshold: *threshold_ns };
                run.simulate(setting, programs, &mut random, &mut outcome);
            }
        }
    }
    Ok(outcome)
}

/// The task of this number, its sleep drawn.
fn task(setting: &Setting, number: u64, random: &mut ChaCha8Rng) -> Task {
    let Work::Task { cpu_ns, gap_ns, sleeps_ns, sleeps_in_turn, before_ns, .. } = &setting.work
    else {
        unreachable!("only tasks have numbers")
    };
    let sleep = match in_turn(sleeps_ns, number) {
        None => {
            let [least, most] = gap_ns.unwrap_or([3 * setting.period_ns, 4 * setting.period_ns]);
            random.random_range(least..=most)
        }
        Some(sleep) if *sleeps_in_turn => sleep,
        Some(_) => sleeps_ns[random.random_range(0..sleeps_ns.len())],
    };
    Task {
        sleep: signed(sleep),
        before: signed(in_turn(before_ns, number).unwrap_or(0)),
        cpu: signed(in_turn(cpu_ns, number).unwrap_or(0)),
    }
}

/// The time of this number, of times that are used one after the other and again from the first.
fn in_turn(times: &[Nanos], number: u64) -> Option<Nanos> {
    let place = number.checked_rem(times.len() as u64)?;
    times.get(usize::try_from(place).unwrap_or(0)).copied()
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time).unwrap_or(FOREVER)
}

fn pattern(steps: &[Step], end: i64) -> Program {
    Program::Pattern { steps: steps.to_vec(), next: 0, end }
}

/// One run of a setting's work, in a new group.
struct Run {
    number: u64,
    threshold: Nanos,
}

impl Run {
    /// Runs programs, whose ends count from their start.
    fn simulate(
        &self,
        setting: &Setting,
        programs: Vec<Program>,
        random: &mut ChaCha8Rng,
        outcome: &mut Outcome,
    ) {
        let epoch = match in_turn(&setting.starts_ns, self.number) {
            Some(start) => signed(start),
            // Far enough from 0 for every phase, and below an hour.
            None => random.random_range(1_000_000_000_000_i64..4_000_000_000_000),
        };
        let offset = match setting.timer {
            Timer::Absolute => 0,
            Timer::Random => random.random_range(0..setting.period_ns),
            Timer::Offset(offset) => offset,
        };
        let pool = setting.quota_ns.map(|quota| {
            Pool::new(setting.period_ns, quota, setting.burst_ns, setting.slice_ns, offset)
                .keeping(setting.kept_ns)
        });
        let threshold = signed(self.threshold);
        let mut threads = Vec::with_capacity(programs.len() + setting.neighbours.len());
        for (number, program) in programs.into_iter().enumerate() {
            threads.push(begun(program, epoch, true, number % setting.cpus, threshold));
        }
        for (number, steps) in setting.neighbours.iter().enumerate() {
            let program = pattern(steps, FOREVER / 2);
            threads.push(begun(program, epoch, false, number % setting.cpus, FOREVER));
        }
        let mut machine = Machine::new(setting, pool, threads, random);
        machine.run();
        outcome.ticks += machine.ticks;
        outcome.seen.extend(machine.threads.into_iter().filter(|t| t.grouped).flat_map(|t| t.seen));
    }
}

/// A thread that begins at a time, its program's end moved there.
fn begun(program: Program, at: i64, grouped: bool, cpu: usize, threshold: i64) -> Thread {
    let program = match program {
        Program::Until(end) => Program::Until(at + end),
        Program::Pattern { steps, next, end } => Program::Pattern { steps, next, end: at + end },
        tasks @ Program::Tasks { .. } => tasks,
    };
    let tasks = matches!(program, Program::Tasks { .. });
    let mut thread = Thread::new(program, grouped, cpu, threshold);
    thread.wakes = at;
    if tasks {
        thread.step(at, thread::Counters::default());
        debug_assert_eq!(thread.state, State::Sleeping);
    }
    thread
}

#[cfg(test)]
mod alone;
#[cfg(test)]
mod tests;
