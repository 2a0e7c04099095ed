//! How many events a second the simulator handles, without writing rows: a cluster of 16-core workers under
//! Leopard's policies with functions of five phases, and queues of which the answer is known, with how
//! far their mean times at loads of 0.5, 0.8 and 0.95 are from theory.
//!
//! `cargo run --release -p uncia-sim --example sim-bench [WORKERS] [REQUESTS] [SEED] [RUNS]`

#![expect(clippy::print_stdout, reason = "its output")]

use std::convert::Infallible;
use std::time::Instant;

use uncia_arrivals::RandomStream;
use uncia_policy::{FunctionSettings, Parameters, PolicyNames, Qos, Resources};
use uncia_sim::{Function, Interval, Life, Phase, Served, Setting, Sink, Summary, Trace, simulate};

const VCPU: u64 = 1_000_000;
const MS: f64 = 1e6;

/// Adds up the times of all requests, in stretches of the trace.
struct Times {
    requests: usize,
    sums: [u128; STRETCHES],
}

/// So many means a run say how far the mean of all may be off.
const STRETCHES: usize = 20;

/// The mean of these, and the half-width of its 95 % interval.
fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    // Student's t with 19 degrees of freedom, which is more than with others that there are here.
    (mean, 2.093 * (squares / (count - 1.0) / count).sqrt())
}

impl Sink for Times {
    type Error = Infallible;

    fn served(&mut self, served: &Served) -> Result<(), Infallible> {
        if let Some(run) = &served.run {
            let stretch = served.invocation / (self.requests / STRETCHES).max(1);
            if let Some(sum) = self.sums.get_mut(stretch) {
                *sum += u128::from(run.ended - served.arrived);
            }
        }
        Ok(())
    }

    fn instance(&mut self, _: &Life) -> Result<(), Infallible> {
        Ok(())
    }

    fn interval(&mut self, _: &Interval) -> Result<(), Infallible> {
        Ok(())
    }
}

fn setting(workers: usize, capacity: Resources, functions: Vec<FunctionSettings>) -> Setting {
    let named = |settings| Function { name: String::new(), settings };
    Setting {
        seed: 1,
        functions: functions.into_iter().map(named).collect(),
        workers: vec![capacity; workers],
        policies: PolicyNames::default(),
        parameters: Parameters::default(),
        sharing: "resv-cpuset".into(),
        starts: vec![0],
        until: None,
        interval: None,
        latency: 0,
        failures: Vec::new(),
        random_failures: None,
    }
}

/// Simulates, and what that came to in how many seconds of CPU time.
fn timed(setting: &Setting, trace: &Trace) -> (Times, Summary, f64) {
    let mut times = Times { requests: trace.invocations.len(), sums: [0; STRETCHES] };
    let begun = Instant::now();
    let before = cpu_time(begun);
    let summary = simulate(setting, trace, &mut times).expect("it can be simulated");
    let seconds = cpu_time(begun) - before;
    (times, summary, seconds)
}

/// CPU time of this thread so far, so that other work on the machine does not count; where the kernel does
/// not say, the time since `begun`.
fn cpu_time(begun: Instant) -> f64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match line.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()) {
        Some(ns) => ns / 1e9,
        None => begun.elapsed().as_secs_f64(),
    }
}

/// The mean time in M/M/8 over that of a service, by Erlang's C formula.
fn erlang(load: f64) -> f64 {
    let offered = load * 8.0;
    let blocked = (1..=8).fold(1.0, |b, n| offered * b / (f64::from(n) + offered * b));
    1.0 + blocked / (1.0 - load * (1.0 - blocked)) / (8.0 * (1.0 - load))
}

/// A queue of which the mean time in the system is known, as a multiple of that of a service.
struct Queue {
    name: &'static str,
    servers: u64,
    /// All that are there share the server, instead of waiting for it.
    is_shared: bool,
    /// The next service, in milliseconds, 1 on average.
    service: fn(&mut RandomStream) -> f64,
    theory: fn(f64) -> f64,
}

const QUEUES: [Queue; 3] = [
    Queue {
        name: "M/M/8",
        servers: 8,
        is_shared: false,
        service: RandomStream::exponential,
        theory: erlang,
    },
    Queue {
        name: "M/D/1",
        servers: 1,
        is_shared: false,
        service: |_| 1.0,
        // Pollaczek and Khinchine.
        theory: |load| 1.0 + load / 2.0 / (1.0 - load),
    },
    Queue {
        name: "M/G/1-PS",
        servers: 1,
        is_shared: true,
        // One in ten takes 5.5 times the mean, the others half of it.
        service: |stream| if stream.whole_below(10, 1) == 0 { 5.5 } else { 0.5 },
        theory: |load| 1.0 / (1.0 - load),
    },
];

impl Queue {
    fn setting(&self) -> Setting {
        let function = FunctionSettings {
            allocation: Resources { cpu: VCPU, memory: 1 },
            spot_cpu: if self.is_shared { VCPU } else { 0 },
            ..FunctionSettings::default()
        };
        let capacity = Resources { cpu: self.servers * VCPU, memory: 1 << 30 };
        let mut setting = setting(1, capacity, vec![function]);
        if self.is_shared {
            "leopard".clone_into(&mut setting.policies.admission);
        }
        setting
    }

    fn trace(&self, requests: usize, load: f64, seed: u64) -> Trace {
        let stream = RandomStream::new(seed, &format!("{} at {load}", self.name));
        let (mut gaps, mut services) = (stream.part(0), stream.part(1));
        let (mut trace, mut now) = (Trace::default(), 0.0);
        for _ in 0..requests {
            now += gaps.exponential() * MS / load / self.servers as f64;
            let duration = ((self.service)(&mut services) * MS) as u64;
            trace.push(0, now as u64, &[Phase { duration, cpu: VCPU, memory: 1 }]);
        }
        trace
    }
}

/// Simulates each queue with so many seeds, and compares the mean of all with theory.
fn queues(requests: usize, seed: u64, runs: u64) {
    for queue in &QUEUES {
        let setting = queue.setting();
        for load in [0.5, 0.8, 0.95] {
            let mut means = Vec::new();
            let mut speed = 0.0;
            for run in seed..seed + runs {
                let trace = queue.trace(requests, load, run);
                let (times, summary, seconds) = timed(&setting, &trace);
                let each = (requests / STRETCHES) as f64 * MS;
                means.extend(times.sums.iter().map(|sum| *sum as f64 / each));
                speed += summary.events as f64 / seconds / 1e6 / runs as f64;
                // Little's law: exact, unless a stretch is left over.
                let spent: u128 = times.sums.iter().sum();
                assert!(
                    !requests.is_multiple_of(STRETCHES) || spent == summary.in_system,
                    "Little's law"
                );
            }
            let (mean, half) = mean(&means);
            let theory = (queue.theory)(load);
            println!(
                "{} at {load}: {mean:.4} +- {half:.4}, in theory {theory:.4} ({:+.2} % +- {:.2} %); \
                 {speed:.2} million events/s",
                queue.name,
                (mean / theory - 1.0) * 100.0,
                half / theory * 100.0,
            );
        }
    }
}

fn cluster(workers: usize, requests: usize) {
    const FUNCTIONS: u64 = 1_000;
    let function = |index: u64| {
        let (cores, is_batch) = (1 + index % 4, index.is_multiple_of(3));
        FunctionSettings {
            allocation: Resources { cpu: cores * VCPU, memory: (64 + index % 10 * 64) << 20 },
            spot_cpu: if is_batch { cores * VCPU } else { 0 },
            preemptible: is_batch,
            qos: if is_batch { Qos::Batch } else { Qos::Interactive },
            ..FunctionSettings::default()
        }
    };
    let capacity = Resources { cpu: 16 * VCPU, memory: 8 << 30 };
    let mut setting = setting(workers, capacity, (0..FUNCTIONS).map(function).collect());
    for (choice, policy) in [
        ("admission", "leopard"),
        ("placement", "leopard"),
        ("order", "shortest-job-first"),
        ("eviction", "least-lost-revenue"),
    ] {
        policy.clone_into(setting.policies.get_mut(choice).expect("a choice"));
    }
    let mut stream = RandomStream::new(1, "cluster");
    let (mut trace, mut now) = (Trace::default(), 0.0);
    // Five phases of 20 ms on 1.25 cores on average: 8 in 10 cores are busy.
    let gap = 100.0 * MS * 1.25 / (16.0 * workers as f64 * 0.8);
    for _ in 0..requests {
        now += stream.exponential() * gap;
        let index = stream.whole_below(FUNCTIONS, 1);
        let settings = function(index).allocation;
        let phases: [Phase; 5] = std::array::from_fn(|_| Phase {
            duration: (stream.exponential() * 20.0 * MS) as u64,
            cpu: stream.whole_below(settings.cpu / VCPU + 1, 1) * VCPU,
            memory: stream.whole_below(settings.memory, 1),
        });
        trace.push(index as usize, now as u64, &phases);
    }
    let (_, summary, seconds) = timed(&setting, &trace);
    let speed = summary.events as f64 / seconds / 1e6;
    println!("{workers} workers, leopard: {} events, {speed:.2} million/s", summary.events);
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|it| it.parse::<usize>().expect("a number"));
    let workers = arguments.next().unwrap_or(8);
    let requests = arguments.next().unwrap_or(200_000);
    let seed = arguments.next().unwrap_or(1) as u64;
    let runs = arguments.next().unwrap_or(1) as u64;
    cluster(workers, requests);
    if runs > 0 {
        queues(requests * 5, seed, runs);
    }
}
