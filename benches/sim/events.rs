//! How many events a second the simulator handles, without writing rows: M/M/8 under the default policies,
//! and a cluster of 16-core workers under Leopard's with functions of five phases. Also how far the mean
//! times of M/M/8 at loads of 0.5, 0.8 and 0.95 are from Erlang's formula.
//!
//! `cargo run --release -p uncia-sim --example sim-bench [WORKERS] [REQUESTS] [SEED]`

#![expect(clippy::print_stdout, reason = "its output")]

use std::convert::Infallible;
use std::time::Instant;

use uncia_arrivals::RandomStream;
use uncia_policy::{FunctionSettings, Parameters, PolicyNames, Qos, Resources};
use uncia_sim::{Function, Interval, Life, Phase, Served, Setting, Sink, Trace, simulate};

const VCPU: u64 = 1_000_000;
const MS: f64 = 1e6;

/// Adds up the times of all requests, in stretches of the trace.
struct Times {
    requests: usize,
    sums: [u128; STRETCHES],
}

/// So many means say how far the mean of all may be off.
const STRETCHES: usize = 20;

impl Times {
    /// The mean, and the half-width of its 95 % interval (Student's t with 19 degrees of freedom).
    fn mean(&self, unit: f64) -> (f64, f64) {
        let each = (self.requests / STRETCHES) as f64 * unit;
        let means = self.sums.map(|sum| sum as f64 / each);
        let count = STRETCHES as f64;
        let mean = means.iter().sum::<f64>() / count;
        let squares: f64 = means.iter().map(|one| (one - mean) * (one - mean)).sum();
        (mean, 2.093 * (squares / (count - 1.0) / count).sqrt())
    }
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

fn timed(what: &str, setting: &Setting, trace: &Trace) -> Times {
    let mut times = Times { requests: trace.invocations.len(), sums: [0; STRETCHES] };
    let begun = Instant::now();
    let before = cpu_time(begun);
    let summary = simulate(setting, trace, &mut times).expect("it can be simulated");
    let seconds = cpu_time(begun) - before;
    let events = summary.events as f64;
    println!("{what}: {events} events in {seconds:.2} s, {:.3} million/s", events / seconds / 1e6);
    times
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

fn queues(requests: usize, seed: u64) {
    let memory = 1 << 30;
    let one = FunctionSettings {
        allocation: Resources { cpu: VCPU, memory: 1 },
        ..FunctionSettings::default()
    };
    let setting = setting(1, Resources { cpu: 8 * VCPU, memory }, vec![one]);
    for load in [0.5, 0.8, 0.95] {
        let stream = RandomStream::new(seed, &format!("M/M/8 at {load}"));
        let (mut gaps, mut services) = (stream.part(0), stream.part(1));
        let (mut trace, mut now) = (Trace::default(), 0.0);
        for _ in 0..requests {
            now += gaps.exponential() * MS / load / 8.0;
            let duration = (services.exponential() * MS) as u64;
            trace.push(0, now as u64, &[Phase { duration, cpu: VCPU, memory: 1 }]);
        }
        let times = timed(&format!("M/M/8 at {load}"), &setting, &trace);
        let (mean, half) = times.mean(MS);
        println!("  mean time {mean:.4} +- {half:.4} services, by Erlang {:.4}", erlang(load));
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
    timed(&format!("{workers} workers, leopard"), &setting, &trace);
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|it| it.parse::<usize>().expect("a number"));
    let workers = arguments.next().unwrap_or(8);
    let requests = arguments.next().unwrap_or(200_000);
    queues(requests * 5, arguments.next().unwrap_or(1) as u64);
    cluster(workers, requests);
}
