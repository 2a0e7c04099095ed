//! Traces, settings and a sink that keeps all rows.

#![allow(dead_code)]

use std::convert::Infallible;

use uncia_arrivals::RandomStream;
use uncia_policy::{FunctionSettings, Nanos, Parameters, PolicyNames, Resources};
use uncia_sim::{
    Function, Integral, Interval, Life, Outcome, Phase, Served, Setting, Sink, Summary, Trace,
    simulate,
};

pub(crate) const VCPU: u64 = 1_000_000;
pub(crate) const MS: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000 * MS;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rows {
    pub served: Vec<Served>,
    pub lives: Vec<Life>,
    pub intervals: Vec<Interval>,
}

impl Sink for Rows {
    type Error = Infallible;

    fn served(&mut self, served: &Served) -> Result<(), Infallible> {
        self.served.push(served.clone());
        Ok(())
    }

    fn instance(&mut self, life: &Life) -> Result<(), Infallible> {
        self.lives.push(life.clone());
        Ok(())
    }

    fn interval(&mut self, interval: &Interval) -> Result<(), Infallible> {
        self.intervals.push(*interval);
        Ok(())
    }
}

pub(crate) fn function(cores: u64, memory: u64) -> FunctionSettings {
    FunctionSettings {
        allocation: Resources { cpu: cores * VCPU, memory },
        ..FunctionSettings::default()
    }
}

pub(crate) fn setting(workers: &[(u64, u64)], functions: &[FunctionSettings]) -> Setting {
    let named = |(index, settings): (usize, &FunctionSettings)| Function {
        name: format!("f{index}"),
        settings: *settings,
    };
    Setting {
        seed: 7,
        functions: functions.iter().enumerate().map(named).collect(),
        workers: workers
            .iter()
            .map(|(cores, memory)| Resources { cpu: cores * VCPU, memory: *memory })
            .collect(),
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

pub(crate) fn run(setting: &Setting, trace: &Trace) -> (Summary, Rows) {
    let mut rows = Rows::default();
    let summary = simulate(setting, trace, &mut rows).expect("it can be simulated");
    check_books(setting, trace, &summary, &rows);
    (summary, rows)
}

/// What must hold in every simulation, to the last unit.
fn check_books(setting: &Setting, trace: &Trace, summary: &Summary, rows: &Rows) {
    let totals = &summary.totals;
    let sum = |of: &dyn Fn(&Served) -> Integral| rows.served.iter().map(of).sum::<Integral>();
    // All that the workers gave is what somebody was given.
    let meter = |served: &Served| served.run.as_ref().map(|run| run.meter).unwrap_or_default();
    let running = &summary.running;
    assert_eq!(sum(&|it| meter(it).cpu_own) + running.cpu_own, totals.cpu_own);
    assert_eq!(sum(&|it| meter(it).cpu_borrowed) + running.cpu_borrowed, totals.cpu_borrowed);
    assert_eq!(sum(&|it| meter(it).cpu_lent) + running.cpu_lent, totals.cpu_lent);
    assert_eq!(sum(&|it| meter(it).memory) + running.memory, totals.memory_used);
    assert_eq!(sum(&|it| meter(it).memory_lent) + running.memory_lent, totals.memory_lent);
    if summary.unfinished == 0 {
        assert_eq!(running.cpu(), 0);
        // Little's law, where each request ends: the area under the number of requests is the sum of
        // the times that they spent.
        let last = |served: &&Served| !matches!(served.outcome, Outcome::Preempted | Outcome::Lost);
        let times = rows.served.iter().filter(last).map(|served| {
            let arrival = trace.invocations[served.invocation].arrival;
            let known = arrival + setting.latency;
            let end = served.run.as_ref().map_or(served.arrived.max(known), |run| run.ended);
            Integral::from(end - arrival)
        });
        assert_eq!(times.sum::<Integral>(), summary.in_system, "Little's law");
        assert_eq!(summary.served + summary.rejected, summary.arrived);
        let reserved = sum(&|it| {
            let time = it.run.as_ref().map_or(0, |run| run.ended - run.started);
            let function = &setting.functions[trace.invocations[it.invocation].function as usize];
            Integral::from(time) * Integral::from(function.settings.reservation().cpu)
        });
        assert_eq!(reserved, totals.cpu_reserved);
    }
    let capacity: u64 = setting.workers.iter().map(|worker| worker.cpu).sum();
    let all = Integral::from(capacity) * Integral::from(summary.end);
    if summary.failures == 0 {
        assert_eq!(totals.cpu_capacity, all);
    } else {
        assert!(totals.cpu_capacity < all);
    }
    assert!(totals.cpu_used() <= totals.cpu_capacity);
    assert!(totals.memory_used + totals.memory_idle <= totals.memory_capacity);
    assert!(totals.cpu_lent <= totals.cpu_borrowed);
    assert!(totals.cpu_own + totals.cpu_lent <= totals.cpu_reserved);
    // The accounts of the workers join, and make up the whole.
    let mut ends = vec![0; setting.workers.len()];
    let mut sum = uncia_sim::Totals::default();
    for interval in &rows.intervals {
        assert_eq!(std::mem::replace(&mut ends[interval.worker], interval.end), interval.start);
        sum = sum + interval.totals;
    }
    assert!(ends.iter().all(|end| *end == summary.end), "{ends:?}");
    assert_eq!(sum, *totals);
    for served in &rows.served {
        let Some(run) = &served.run else { continue };
        assert!(served.arrived <= run.started && run.started <= run.ended);
        let needed: Integral = trace
            .phases(&trace.invocations[served.invocation])
            .iter()
            .map(|phase| Integral::from(phase.duration) * Integral::from(phase.cpu))
            .sum();
        let phases = Integral::from(trace.invocations[served.invocation].phases);
        if served.outcome == Outcome::Ok {
            // At most a nanosecond of what it runs on more, a phase.
            let rounding = phases * Integral::from(capacity);
            assert!((needed..=needed + rounding).contains(&run.meter.cpu()));
        }
    }
}

/// A phase that uses one core for so long.
pub(crate) fn busy(duration: Nanos) -> Phase {
    Phase { duration, cpu: VCPU, memory: 1 }
}

/// Requests of one function: Poisson arrivals with this mean gap, and services as drawn.
pub(crate) fn poisson(
    seed: u64,
    requests: usize,
    gap: f64,
    mut service: impl FnMut(&mut RandomStream) -> Nanos,
) -> Trace {
    let mut gaps = RandomStream::new(seed, "gaps");
    let mut services = RandomStream::new(seed, "services");
    let (mut trace, mut now) = (Trace::default(), 0);
    for _ in 0..requests {
        now += (gaps.exponential() * gap) as Nanos;
        trace.push(0, now, &[busy(service(&mut services))]);
    }
    trace
}
