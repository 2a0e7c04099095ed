//! What metering costs an invocation: the CPU time of what the platform's meter reads at its
//! beginning and end, in a real control group, and of each reading alone.
//!
//! The group holds processes that sleep, as an instance does whose runtime has answered.

#![expect(clippy::print_stdout, reason = "its output")]

use std::cell::RefCell;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::thread::available_parallelism;

use nix::time::{ClockId, clock_gettime};
use uncia_cgroup::{Counters, Group, Limits, PerfEvents, Thread, Waits, discover, own_name};

const INVOCATIONS: u32 = 20_000;
const ROUNDS: usize = 9;
const PROCESSES: usize = 4;
const LIMITS: Limits =
    Limits { memory_bytes: 1769 << 20, pids_max: 256, cpu_micro: 1_000_000, period_us: 20_000 };

/// Page faults and context switches, as the setting `counters` has them read.
const EVENTS: [(u32, u64); 2] = [(1, 2), (1, 3)];

type Reading<'a> = (&'static str, &'a dyn Fn());

fn main() {
    let name = own_name();
    // Beside it, where version 1 has the controllers: perf wants groups of version 2.
    let layout = discover(&name, false).expect("control groups").beside(&name);
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
    measure(&group.counters(), &runtime, &events(&group));
    for process in &mut processes {
        process.kill().expect("to end it");
        process.wait().expect("its end");
    }
    group.remove().expect("the group removed");
    layout.remove().expect("its parent removed");
}

/// The events of a group on each CPU.
fn events(group: &Group) -> Vec<PerfEvents> {
    let folder = group.events_folder().expect("a mounted tree of version 2, as counters need");
    let folder = File::open(folder).expect("its folder");
    let cpus = available_parallelism().map_or(1, |it| i32::try_from(it.get()).unwrap_or(1));
    let on = |cpu| PerfEvents::open(&EVENTS, cpu, Some(folder.as_fd())).expect("events of a group");
    (0..cpus).map(on).collect()
}

fn measure(counters: &Counters, runtime: &Thread, events: &[PerfEvents]) {
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
    let waits = RefCell::new(Waits::default());
    let _ = waits.borrow_mut().all(counters);
    let faults = || {
        for on_cpu in events {
            black_box(on_cpu.read());
        }
    };
    let known = || {
        black_box(waits.borrow_mut().known(counters));
    };
    let all = || {
        black_box(waits.borrow_mut().all(counters));
    };
    let counted = || {
        faults();
        known();
        faults();
        all();
    };
    let readings: [Reading<'_>; 12] = [
        ("CPU time", &cpu),
        ("throttling", &throttling),
        ("memory", &memory),
        ("peak", &peak),
        ("number of threads", &threads),
        ("whether the runtime runs", &runs),
        ("**an invocation that cannot have been throttled: 6 of these**", &invocation),
        ("**an invocation: 8 of these**", &throttled),
        ("counters: events on each CPU", &faults),
        ("counters: waits of threads that are known", &known),
        ("counters: waits of all threads", &all),
        ("**counters of an invocation, besides**", &counted),
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
