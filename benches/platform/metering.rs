//! What metering costs an invocation: the CPU time of what the platform's meter reads at its
//! beginning and end, in a real control group, and of each reading alone.
//!
//! The group holds processes that sleep, as an instance does whose runtime has answered.

#![expect(clippy::print_stdout, reason = "its output")]

use std::fs;
use std::hint::black_box;
use std::process::{Child, Command};

use nix::time::{ClockId, clock_gettime};
use uncia_cgroup::{Counters, Group, Limits, Thread, discover, own_name};

const INVOCATIONS: u32 = 20_000;
const ROUNDS: usize = 9;
const PROCESSES: usize = 4;
const LIMITS: Limits =
    Limits { memory_bytes: 1769 << 20, pids_max: 256, cpu_micro: 1_000_000, period_us: 20_000 };

type Reading<'a> = (&'static str, &'a dyn Fn());

fn main() {
    let layout = discover(&own_name(), false).expect("control groups");
    let group = Group::create(&layout, "instance", &LIMITS).expect("a group");
    group.set_quota(&LIMITS).expect("a quota");
    let mut processes: Vec<Child> = (0..PROCESSES)
        .map(|_| Command::new("sleep").arg("600").spawn().expect("a process"))
        .collect();
    for process in &processes {
        for file in group.join_files() {
            fs::write(file, process.id().to_string()).expect("to join the group");
        }
    }
    let runtime = Thread::open(processes[0].id().cast_signed()).expect("its first thread");
    measure(&group.counters(), &runtime);
    for process in &mut processes {
        process.kill().expect("to end it");
        process.wait().expect("its end");
    }
    group.remove().expect("the group removed");
    layout.remove().expect("its parent removed");
}

fn measure(counters: &Counters, runtime: &Thread) {
    let cpu = || {
        black_box(counters.cpu_total());
    };
    let throttling = || {
        black_box(counters.throttling());
    };
    let memory = || {
        black_box(counters.memory());
    };
    let peak = || {
        black_box(counters.peak());
    };
    let threads = || {
        black_box(counters.threads());
    };
    let runs = || {
        black_box(runtime.running_on());
    };
    let invocation = || {
        // The memory is what it was when the last one ended.
        cpu();
        threads();
        runs();
        cpu();
        memory();
        peak();
    };
    let throttled = || {
        invocation();
        throttling();
        throttling();
    };
    let readings: [Reading<'_>; 8] = [
        ("CPU time", &cpu),
        ("throttling", &throttling),
        ("memory", &memory),
        ("peak", &peak),
        ("number of threads", &threads),
        ("whether the runtime runs", &runs),
        ("**an invocation that cannot have been throttled: 6 of these**", &invocation),
        ("**an invocation: 8 of these**", &throttled),
    ];
    println!("| reading | us |\n|---|---|");
    for (name, reading) in readings {
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| cost_us(reading)).collect();
        rounds.sort_by(f64::total_cmp);
        println!("| {name} | {:.2} |", rounds[ROUNDS / 2]);
    }
}

/// CPU time of a reading, in us.
fn cost_us(reading: &dyn Fn()) -> f64 {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock");
    let before = now();
    for _ in 0..INVOCATIONS {
        reading();
    }
    let used = now() - before;
    (used.tv_sec() as f64 * 1e6 + used.tv_nsec() as f64 / 1e3) / f64::from(INVOCATIONS)
}
