//! How many events a second the scheduler handles, for a cluster as large as the papers': 160 workers,
//! 10,000 functions, some 50,000 instances.
//!
//! A virtual cluster is driven once, and the events it sends are recorded. Then the same events go to
//! fresh schedulers, and only that is timed. The decisions of all runs must be the same, by their
//! hash.

#![expect(clippy::print_stdout, reason = "its output")]

use std::cmp::Reverse;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{Hash, Hasher};
use std::time::Instant;

use uncia_policy::{
    Capacity, Decision, End, Event, FunctionId, FunctionSettings, InstanceId, Nanos, Pause,
    Policies, PolicyNames, Qos, RequestId, Resources, Scheduler, Usage, WorkerId,
};

const WORKERS: u32 = 160;
const INSTANCES_PER_WORKER: u32 = 320;
const FUNCTIONS: u64 = 10_000;
/// Arrivals a second, and the mean duration of an invocation: 12,000 run at once.
const RATE: f64 = 120_000.0;
/// One arrival in so many is the first of a burst of this size.
const BURST_EVERY: u64 = 1_000;
const BURST_SIZE: u64 = 40;
const DURATION: f64 = 100e6;
const INITIALIZATION: f64 = 150e6;
/// Events until the cluster is full, the set-up among them, and those that are timed.
const WARM_UP: usize = 1_000_000 - WORKERS as usize - FUNCTIONS as usize;
const TIMED: usize = 1_000_000;
const SEED: u64 = 11;

/// A generator that is good enough here, and the same everywhere.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> Nanos {
        (-(1.0 - self.uniform()).ln() * mean) as Nanos + 1
    }
}

/// What becomes due in the virtual cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A request of any function, or a further one of a burst.
    Arrival,
    Burst(u64),
    Ready(InstanceId),
    End(RequestId, InstanceId, Nanos),
    Gone(InstanceId),
    Preempted(InstanceId),
    Wake,
}

/// The hash of decisions, in which an instance is the how manyth to be started, whatever its name is.
#[derive(Default)]
struct Digest {
    hash: DefaultHasher,
    starts: HashMap<InstanceId, InstanceId>,
}

impl Digest {
    fn add(&mut self, decisions: &[Decision]) {
        for decision in decisions {
            let mut decision = *decision;
            if let Decision::Start { instance, .. } = &decision {
                let number = self.starts.len() as u64;
                self.starts.insert(*instance, InstanceId(number));
            }
            match &mut decision {
                Decision::Start { instance, .. }
                | Decision::Assign { instance, .. }
                | Decision::Pause { instance, .. }
                | Decision::Stop { instance, .. }
                | Decision::Preempt { instance }
                | Decision::Hold { instance }
                | Decision::Release { instance }
                | Decision::SetCpu { instance, .. } => *instance = self.starts[instance],
                Decision::Reject { .. } | Decision::WakeAt(_) => {}
            }
            decision.hash(&mut self.hash);
        }
    }
}

/// An event of the cluster as it is recorded: small, so that reading the record does not displace
/// what the scheduler has in the caches.
#[derive(Debug, Clone, Copy)]
enum Recorded {
    Arrival { request: u64, function: u32 },
    Ready { instance: InstanceId },
    Ended { request: u64, instance: InstanceId, duration: u32 },
    Preempted { request: u64, instance: InstanceId },
    Gone { instance: InstanceId },
    Wake,
}

/// With the time.
const _: () = assert!(size_of::<(Nanos, Recorded)>() == 32);

impl Recorded {
    fn event(self) -> Event {
        match self {
            Self::Arrival { request, function } => Event::Arrival {
                request: RequestId(request),
                function: FunctionId(function.into()),
                can_wait: true,
            },
            Self::Ready { instance } => {
                Event::InstanceReady { instance, initialization: INITIALIZATION as Nanos }
            }
            Self::Ended { request, instance, duration } => {
                let duration = Nanos::from(duration);
                let usage = Usage { duration, cpu: Some(duration / 2), memory: Some(64 << 20) };
                let request = RequestId(request);
                Event::InvocationEnded { request, instance, end: End::Survives, usage }
            }
            Self::Preempted { request, instance } => {
                let (request, usage) = (RequestId(request), Usage::default());
                Event::InvocationEnded { request, instance, end: End::Preempted, usage }
            }
            Self::Gone { instance } => Event::InstanceGone { instance },
            Self::Wake => Event::Wake,
        }
    }
}

/// What is measured.
struct Case {
    title: &'static str,
    policies: PolicyNames,
    /// Instances for which each worker has memory.
    room: u32,
    /// Of four functions so many are preemptible batch.
    batch: u64,
}

/// The cluster's workers and functions.
fn setup(case: &Case) -> Vec<Event> {
    let resources = Resources { cpu: u64::MAX, memory: u64::from(case.room) * (128 << 20) };
    let capacity = Capacity { resources, max_instances: INSTANCES_PER_WORKER };
    let join = |worker| Event::WorkerJoined { worker: WorkerId(worker), capacity };
    let configure = |function| Event::FunctionConfigured {
        function: FunctionId(function),
        settings: settings(case, function),
    };
    (0..WORKERS).map(join).chain((0..FUNCTIONS).map(configure)).collect()
}

/// A scheduler that knows the cluster.
fn scheduler(case: &Case) -> Scheduler {
    let mut scheduler = Scheduler::new(Policies::from_names(&case.policies).unwrap(), SEED);
    let mut out = Vec::new();
    for event in setup(case) {
        scheduler.on_event(0, &event, &mut out);
    }
    assert!(out.is_empty());
    scheduler
}

fn settings(case: &Case, function: u64) -> FunctionSettings {
    let batch = function % 4 >= 4 - case.batch;
    let cpu = 100_000 * (1 + function % 5);
    FunctionSettings {
        keep_alive: [1_000_000_000, 5_000_000_000, 60_000_000_000][(function % 3) as usize],
        pause_after: 50_000_000,
        pause: [Some(Pause::Freeze), None][(function % 2) as usize],
        allocation: Resources { cpu, memory: 128 << 20 },
        spot_cpu: if batch { cpu } else { 0 },
        preemptible: batch,
        qos: if batch { Qos::Batch } else { Qos::Interactive },
        ..FunctionSettings::default()
    }
}

/// The events of a cluster from empty to full and on, the hash of the decisions, and the peak of
/// instances.
fn record(case: &Case) -> (Vec<(Nanos, Recorded)>, u64, usize) {
    let mut random = SplitMix(SEED);
    let mut scheduler = scheduler(case);
    let mut cumulative = Vec::new();
    let mut total = 0.0;
    for rank in 1..=FUNCTIONS {
        total += 1.0 / (rank as f64).powf(0.9);
        cumulative.push(total);
    }
    let mut due: BinaryHeap<Reverse<(Nanos, u64, Due)>> = BinaryHeap::new();
    let mut order = 0;
    let mut schedule = |due: &mut BinaryHeap<_>, at: Nanos, what: Due| {
        order += 1;
        due.push(Reverse((at, order, what)));
    };
    let mut events: Vec<(Nanos, Recorded)> = Vec::with_capacity(WARM_UP + TIMED);
    let mut digest = Digest::default();
    let mut out = Vec::new();
    schedule(&mut due, 0, Due::Arrival);
    let (mut requests, mut peak) = (0, 0);
    let mut served: HashMap<InstanceId, RequestId> = HashMap::new();
    let mut wake_at = None;
    while events.len() < WARM_UP + TIMED {
        let Some(Reverse((now, _, what))) = due.pop() else { break };
        let event = match what {
            Due::Arrival => {
                schedule(&mut due, now + random.exponential(1e9 / RATE), Due::Arrival);
                let drawn = random.uniform() * total;
                let function = cumulative.partition_point(|sum| *sum < drawn) as u64;
                let function = function.min(FUNCTIONS - 1);
                if random.next().is_multiple_of(BURST_EVERY) {
                    let uniform = random.next() % FUNCTIONS;
                    (0..BURST_SIZE).for_each(|_| schedule(&mut due, now, Due::Burst(uniform)));
                }
                requests += 1;
                Recorded::Arrival { request: requests, function: function as u32 }
            }
            Due::Burst(function) => {
                requests += 1;
                Recorded::Arrival { request: requests, function: function as u32 }
            }
            Due::Ready(instance) => Recorded::Ready { instance },
            Due::End(request, instance, duration) => {
                // Unless it was preempted first.
                if served.get(&instance) != Some(&request) {
                    continue;
                }
                served.remove(&instance);
                Recorded::Ended { request: request.0, instance, duration: duration as u32 }
            }
            Due::Gone(instance) => Recorded::Gone { instance },
            Due::Preempted(instance) => {
                let Some(request) = served.remove(&instance) else { continue };
                Recorded::Preempted { request: request.0, instance }
            }
            Due::Wake if wake_at != Some(now) => continue,
            Due::Wake => Recorded::Wake,
        };
        events.push((now, event));
        out.clear();
        scheduler.on_event(now, &event.event(), &mut out);
        digest.add(&out);
        peak = peak.max(scheduler.instances());
        for decision in &out {
            match *decision {
                Decision::Start { instance, .. } => {
                    let at = now + random.exponential(INITIALIZATION);
                    schedule(&mut due, at, Due::Ready(instance));
                }
                Decision::Assign { request, instance, .. } => {
                    served.insert(instance, request);
                    let duration = random.exponential(DURATION);
                    schedule(&mut due, now + duration, Due::End(request, instance, duration));
                }
                Decision::Stop { instance, .. } => {
                    schedule(&mut due, now + 5_000_000, Due::Gone(instance));
                }
                Decision::Preempt { instance } => {
                    schedule(&mut due, now + 400_000, Due::Preempted(instance));
                }
                Decision::WakeAt(at) => {
                    wake_at = Some(at);
                    schedule(&mut due, at, Due::Wake);
                }
                Decision::Reject { .. }
                | Decision::Pause { .. }
                | Decision::Hold { .. }
                | Decision::Release { .. }
                | Decision::SetCpu { .. } => {}
            }
        }
    }
    (events, digest.hash.finish(), peak)
}

/// CPU time of this thread so far, so that other work on the machine does not count; where the
/// kernel does not say, the time since `began`.
fn cpu_time(began: Instant) -> f64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    match line.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()) {
        Some(ns) => ns / 1e9,
        None => began.elapsed().as_secs_f64(),
    }
}

/// Events a second from a full cluster on, and the decisions of each kind.
fn replay(case: &Case, events: &[(Nanos, Recorded)]) -> (f64, usize) {
    let mut scheduler = scheduler(case);
    let mut out = Vec::with_capacity(1_024);
    let (warm_up, timed) = events.split_at(WARM_UP);
    for (now, event) in warm_up {
        scheduler.on_event(*now, &event.event(), &mut out);
        out.clear();
    }
    let began = Instant::now();
    let before = cpu_time(began);
    let decisions = drive(&mut scheduler, timed, &mut out);
    (timed.len() as f64 / (cpu_time(began) - before), decisions)
}

/// What is timed; the number of decisions. A function of its own, so that profilers can tell it apart.
#[inline(never)]
fn drive(
    scheduler: &mut Scheduler,
    events: &[(Nanos, Recorded)],
    out: &mut Vec<Decision>,
) -> usize {
    let mut decisions = 0;
    for (now, event) in events {
        scheduler.on_event(*now, &event.event(), out);
        decisions += out.len();
        out.clear();
    }
    decisions
}

/// The hash of all decisions on the recorded events.
fn rehash(case: &Case, events: &[(Nanos, Recorded)]) -> (u64, [usize; KINDS.len()]) {
    let mut scheduler = scheduler(case);
    let (mut out, mut digest) = (Vec::new(), Digest::default());
    let mut kinds = [0; KINDS.len()];
    for (index, (now, event)) in events.iter().enumerate() {
        scheduler.on_event(*now, &event.event(), &mut out);
        digest.add(&out);
        if index >= WARM_UP {
            for decision in &out {
                kinds[kind(decision)] += 1;
            }
        }
        out.clear();
    }
    (digest.hash.finish(), kinds)
}

const KINDS: [&str; 10] = [
    "start", "assign", "reject", "pause", "stop", "preempt", "set-cpu", "wake-at", "hold",
    "release",
];

fn kind(decision: &Decision) -> usize {
    match decision {
        Decision::Start { .. } => 0,
        Decision::Assign { .. } => 1,
        Decision::Reject { .. } => 2,
        Decision::Pause { .. } => 3,
        Decision::Stop { .. } => 4,
        Decision::Preempt { .. } => 5,
        Decision::SetCpu { .. } => 6,
        Decision::WakeAt(_) => 7,
        Decision::Hold { .. } => 8,
        Decision::Release { .. } => 9,
    }
}

fn measure(case: &Case, repeats: usize) {
    let (events, recorded, peak) = record(case);
    let (hash, kinds) = rehash(case, &events);
    assert_eq!(recorded, hash, "the same seed and events give the same decisions");
    let mut rates: Vec<f64> = (0..repeats).map(|_| replay(case, &events).0 / 1e6).collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "{}: {:.2} million events/s (median of {repeats}; {:.2} to {:.2}), {peak} instances, \
         decisions {hash:016x}",
        case.title,
        rates[repeats / 2],
        rates[0],
        rates[repeats - 1],
    );
    let kinds: Vec<String> =
        KINDS.iter().zip(kinds).map(|(name, count)| format!("{name} {count}")).collect();
    println!("  of {TIMED} events: {}", kinds.join(", "));
}

fn main() {
    let repeats = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let default = PolicyNames { placement: "least-loaded".into(), ..PolicyNames::default() };
    let classes = PolicyNames { admission: "two-class".into(), ..default.clone() };
    let room = INSTANCES_PER_WORKER;
    let cases = [
        Case { title: "Lambda's policies", policies: default, room, batch: 1 },
        Case { title: "two classes", policies: classes.clone(), room, batch: 1 },
        Case { title: "two classes with preemption", policies: classes, room: 120, batch: 3 },
    ];
    // A second argument measures one case alone, by its number.
    let only: Option<usize> = std::env::args().nth(2).and_then(|n| n.parse().ok());
    for (index, case) in cases.iter().enumerate() {
        if only.is_none_or(|only| only == index + 1) {
            measure(case, repeats);
        }
    }
}
