//! What metering costs an invocation: the CPU time of what the platform's meter reads at its
//! beginning and end, in a real control group, and of each reading alone.
//!
//! Each group holds processes that wait, as an instance does whose runtime has answered: four that sleep, and,
//! where they are installed, Node.js with the threads that it has by itself, and Python with threads of its own.

#![expect(clippy::print_stdout, reason = "its output")]

use std::cell::RefCell;
use std::fs::{self, File};
use std::hint::black_box;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use uncia_cgroup::{
    Counters, Group, Limits, PerfEvents, Thread, Threads, Waits, discover, own_name,
};

const INVOCATIONS: u32 = 20_000;
const ROUNDS: usize = 9;
const LIMITS: Limits =
    Limits { memory_bytes: 1769 << 20, pids_max: 256, cpu_micro: 1_000_000, period_us: 20_000 };

/// Page faults and context switches, as the setting `counters` has them read.
const EVENTS: [(u32, u64); 2] = [(1, 2), (1, 3)];

/// What a group holds: how it is called, the command, how many of it, and the least number of threads that it
/// has once it waits.
const INHABITANTS: [(&str, &[&str], usize, i64); 3] = [
    ("4 sleeping processes", &["sleep", "600"], 4, 4),
    ("Node.js", &["node", "-e", "setTimeout(() => {}, 600000)"], 1, 7),
    ("Python, 8 threads", &["python3", "-c", WITH_THREADS], 1, 8),
];
const WITH_THREADS: &str = "
import threading, time
for _ in range(7): threading.Thread(target=time.sleep, args=(600,)).start()
time.sleep(600)";

/// Until what was started waits.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const SETTLED: Duration = Duration::from_millis(500);

type Reading<'a> = (&'static str, &'a dyn Fn());

/// What each reading costs, in us.
type Column = Vec<(&'static str, f64)>;

fn main() {
    let name = own_name();
    // Beside it, where version 1 has the controllers: perf wants groups of version 2.
    let layout = discover(&name, false).expect("control groups").beside(&name);
    let mut columns = Vec::new();
    for (title, command, processes, threads) in INHABITANTS {
        let group = Group::create(&layout, "instance", &LIMITS).expect("a group");
        group.set_quota(&LIMITS).expect("a quota");
        match start(command, processes, &group) {
            Some(started) => {
                columns.push((title, measure_with(&group, started, threads)));
            }
            None => println!("{title}: not measured, `{}` does not start", command[0]),
        }
        group.remove().expect("the group removed");
    }
    layout.remove().expect("its parent removed");
    show(&columns);
}

/// So many processes of a command, in the group. `None` if it is not installed.
fn start(command: &[&str], processes: usize, group: &Group) -> Option<Vec<Child>> {
    let mut started = Vec::new();
    for _ in 0..processes {
        let process = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).spawn();
        let process = process.ok()?;
        for file in group.join_files() {
            fs::write(file, process.id().to_string()).expect("to join the group");
        }
        started.push(process);
    }
    Some(started)
}

/// Measures with these in the group, then ends them.
fn measure_with(group: &Group, mut started: Vec<Child>, threads: i64) -> Column {
    let counters = group.counters();
    let deadline = Instant::now() + START_TIMEOUT;
    while counters.threads().is_none_or(|count| count < threads) {
        assert!(Instant::now() < deadline, "{:?} of {threads} threads", counters.threads());
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(SETTLED);
    let runtime = Thread::open(started[0].id().cast_signed()).expect("its first thread");
    let column = measure(&counters, &runtime, &events(group));
    for process in &mut started {
        process.kill().expect("to end it");
        process.wait().expect("its end");
    }
    column
}

/// The events of a group on each CPU.
fn events(group: &Group) -> Vec<PerfEvents> {
    let folder = group.events_folder().expect("a mounted tree of version 2, as counters need");
    let folder = File::open(folder).expect("its folder");
    let cpus = available_parallelism().map_or(1, |it| i32::try_from(it.get()).unwrap_or(1));
    let on = |cpu| PerfEvents::open(&EVENTS, cpu, Some(folder.as_fd())).expect("events of a group");
    (0..cpus).map(on).collect()
}

fn measure(counters: &Counters, runtime: &Thread, events: &[PerfEvents]) -> Column {
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
    let looked_at = RefCell::new(Threads::default());
    let who_runs = || {
        black_box(counters.running(&mut looked_at.borrow_mut()));
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
    let readings: [Reading<'_>; 13] = [
        ("CPU time", &cpu),
        ("throttling", &throttling),
        ("memory", &memory),
        ("peak", &peak),
        ("number of threads", &threads),
        ("whether the runtime runs", &runs),
        ("**an invocation that cannot have been throttled: 6 of these**", &invocation),
        ("**an invocation: 8 of these**", &throttled),
        ("which of all threads run, after work in the background", &who_runs),
        ("counters: events on each CPU", &faults),
        ("counters: waits of threads that are known", &known),
        ("counters: waits of all threads", &all),
        ("**counters of an invocation, besides**", &counted),
    ];
    readings
        .map(|(name, reading)| {
            let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| cost_us(reading)).collect();
            rounds.sort_by(f64::total_cmp);
            (name, rounds[ROUNDS / 2])
        })
        .into()
}

/// Prints a table of columns that have the same rows.
fn show(columns: &[(&str, Column)]) {
    let titles: String = columns.iter().map(|(title, _)| format!(" {title} |")).collect();
    println!("| reading, us |{titles}\n|---|{}", "---|".repeat(columns.len()));
    for (row, (name, _)) in columns[0].1.iter().enumerate() {
        let cells: String =
            columns.iter().map(|(_, column)| format!(" {:.2} |", column[row].1)).collect();
        println!("| {name} |{cells}");
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
