//! What a simulation tells of, as rows of the tables that real runs have.

use std::sync::Arc;

use uncia_policy::{Policies, Qos, Rejection, Resources, StopReason};
use uncia_record::{
    Epoch, Instance, Invocation, InvocationBuilder, Machine, RecordError, StreamWriter, Text,
};
use uncia_sim::{Gone, Integral, Interval, Life, Outcome, Run, Served, Setting, Sink, Trace};

use super::config::Configuration;
use super::slowdowns::Slowdowns;

const PLATFORM: &str = "simulated";
const MICRO: u64 = 1_000_000;

/// Words that rows repeat.
struct Words {
    run: Text,
    experiment: Text,
    platform: Text,
    cold: Text,
    warm: Text,
    ok: Text,
    preempted: Text,
    throttled: Text,
    interactive: Text,
    batch: Text,
}

impl Words {
    fn new(configuration: &Configuration) -> Self {
        Self {
            run: text(&configuration.run),
            experiment: text(&configuration.experiment),
            platform: text(PLATFORM),
            cold: text("cold"),
            warm: text("warm"),
            ok: text("ok"),
            preempted: text("preempted"),
            throttled: text("throttled"),
            interactive: text("interactive"),
            batch: text("batch"),
        }
    }
}

/// What all rows of a function have in common.
struct FunctionWords {
    name: Text,
    class: Qos,
    qos: Text,
    allocation: Resources,
    reserved_cpu: u64,
    spot_cpu: u64,
    preemptible: bool,
}

/// Writes rows to the three tables.
pub(super) struct Rows<'a> {
    trace: &'a Trace,
    /// Whether the policies read hints.
    reads_hints: bool,
    words: Words,
    functions: Vec<FunctionWords>,
    workers: Vec<Text>,
    /// The number and name of the last instance in each slot.
    instances: Vec<(usize, Text)>,
    /// What the ids of invocations begin with.
    prefix: String,
    written: u64,
    slowdowns: Slowdowns,
    invocations: StreamWriter<Invocation>,
    lives: StreamWriter<Instance>,
    machine: StreamWriter<Machine>,
}

/// Whether the policies read hints; those of a setting that is wrong do not.
fn reads_hints(setting: &Setting) -> bool {
    Policies::from_names(&setting.policies).is_ok_and(|policies| policies.retention.reads_hints())
}

/// So many rows are written between two looks at the clock.
const ROWS_PER_TICK: u64 = 1_024;

fn text(words: &str) -> Text {
    Arc::from(words)
}

/// Whole units of what was counted in units x ns and micro-units.
fn whole(integral: Integral) -> i64 {
    i64::try_from(integral).unwrap_or(i64::MAX)
}

fn time(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

/// `integral / by`; most fit in 64 bits, which is much quicker.
fn quotient(integral: Integral, by: u64) -> Option<i64> {
    match u64::try_from(integral) {
        Ok(integral) => integral.checked_div(by).map(time),
        Err(_) => integral.checked_div(by.into()).map(whole),
    }
}

/// Nanoseconds of a whole vCPU.
fn cpu_time(integral: Integral) -> i64 {
    quotient(integral, MICRO).unwrap_or(0)
}

impl<'a> Rows<'a> {
    /// Creates the tables, which must not exist yet.
    pub(super) fn create(
        configuration: &Configuration,
        setting: &Setting,
        trace: &'a Trace,
    ) -> Result<Self, RecordError> {
        let file = |name: &str| configuration.output.join(name);
        let words = Words::new(configuration);
        let functions = setting.functions.iter().map(|function| {
            let settings = &function.settings;
            FunctionWords {
                name: text(&function.name),
                class: settings.qos,
                qos: match settings.qos {
                    Qos::Interactive => words.interactive.clone(),
                    Qos::Batch => words.batch.clone(),
                },
                allocation: settings.allocation,
                reserved_cpu: settings.reservation().cpu,
                spot_cpu: settings.spot_cpu.min(settings.allocation.cpu),
                preemptible: settings.preemptible,
            }
        });
        Ok(Self {
            trace,
            reads_hints: reads_hints(setting),
            functions: functions.collect(),
            // Each experiment has a cluster of its own, and rows of `machine` name no experiment.
            workers: (0..setting.workers.len())
                .map(|it| text(&format!("{}-worker-{it}", configuration.experiment)))
                .collect(),
            words,
            instances: Vec::new(),
            prefix: format!("{}-", configuration.experiment),
            written: 0,
            slowdowns: Slowdowns::default(),
            invocations: StreamWriter::create(&file("invocations.arrows"), Epoch::UNIX)?,
            lives: StreamWriter::create(&file("instances.arrows"), Epoch::UNIX)?,
            machine: StreamWriter::create(&file("machine.arrows"), Epoch::UNIX)?,
        })
    }

    /// Writes what remains; how much longer requests took than alone.
    pub(super) fn close(self) -> Result<Slowdowns, RecordError> {
        self.invocations.close()?;
        self.lives.close()?;
        self.machine.close()?;
        Ok(self.slowdowns)
    }

    /// The name of the instance that is in a slot now.
    fn name(&mut self, slot: usize, number: usize) -> Text {
        if self.instances.len() <= slot {
            self.instances.resize(slot + 1, (usize::MAX, self.words.cold.clone()));
        }
        let known = &mut self.instances[slot];
        if known.0 != number {
            *known = (number, text(&format!("{}{number}", self.prefix)));
        }
        known.1.clone()
    }
}

/// The columns of an attempt that ran.
fn set_run(
    to: &mut InvocationBuilder,
    row: usize,
    run: &Run,
    queued_since: u64,
    function: &FunctionWords,
) {
    let meter = &run.meter;
    let execution = run.ended - run.started;
    to.shared.set(row, false);
    to.started.set(row, time(run.started));
    to.ended.set(row, time(run.ended));
    if let Some(initialization) = run.initialization {
        to.initialization.set(row, time(initialization));
    }
    let queued = run.started - queued_since - run.initialization.unwrap_or(0);
    to.queued.set(row, time(queued));
    to.execution.set(row, time(execution));
    to.cpu_user.set(row, cpu_time(meter.cpu()));
    to.cpu_system.set(row, 0);
    // The average of what takes no time is what was held at that moment, and nothing was lent.
    let average = quotient(meter.memory, execution).unwrap_or(time(meter.memory_peak));
    to.memory_avg.set(row, average);
    to.memory_peak.set(row, time(meter.memory_peak));
    let reserved = Integral::from(function.reserved_cpu) * Integral::from(execution);
    to.reserved_cpu_time.set(row, cpu_time(reserved));
    to.borrowed_cpu_time.set(row, cpu_time(meter.cpu_borrowed));
    to.lent_cpu_time.set(row, cpu_time(meter.cpu_lent));
    to.lent_memory_avg.set(row, quotient(meter.memory_lent, execution).unwrap_or(0));
}

impl Sink for Rows<'_> {
    type Error = RecordError;

    fn served(&mut self, served: &Served) -> Result<(), RecordError> {
        let instance = served.run.as_ref().map(|run| self.name(run.slot, run.instance));
        let invocation = &self.trace.invocations[served.invocation];
        let function = &self.functions[invocation.function as usize];
        let (words, workers, prefix) = (&self.words, &self.workers, &self.prefix);
        let (outcome, error) = match served.outcome {
            Outcome::Ok => (&words.ok, None),
            Outcome::Preempted => (&words.preempted, Some("its room was needed")),
            Outcome::Lost => (&words.preempted, Some("its worker failed")),
            Outcome::Rejected(reason) => (&words.throttled, Some(rejected(reason))),
        };
        self.invocations.push_with(|to, row| {
            to.run.set(row, &words.run);
            to.experiment.set(row, &words.experiment);
            to.platform.set(row, &words.platform);
            to.function.set(row, &function.name);
            to.invocation.set_numbered(row, prefix, served.invocation as u64);
            to.attempt.set(row, i64::from(served.attempt));
            to.open_loop.set(row, true);
            to.scheduled.set(row, time(invocation.arrival));
            // Once: what is stopped waits again in the platform.
            to.sent.set(row, time(invocation.arrival));
            to.outcome.set(row, outcome);
            if let Some(error) = error {
                to.error.set(row, error);
            }
            to.allocated_cpu.set(row, time(function.allocation.cpu));
            to.allocated_memory.set(row, time(function.allocation.memory));
            to.reserved_cpu.set(row, time(function.reserved_cpu));
            to.spot_cpu.set(row, time(function.spot_cpu));
            to.preemptible.set(row, function.preemptible);
            to.qos.set(row, &function.qos);
            if let (Some(run), Some(instance)) = (&served.run, &instance) {
                let is_cold = run.initialization.is_some();
                to.instance.set(row, instance);
                to.worker.set(row, &workers[run.worker]);
                to.start.set(row, if is_cold { &words.cold } else { &words.warm });
                set_run(to, row, run, served.arrived, function);
                if served.outcome == Outcome::Ok {
                    to.received.set(row, time(run.ended));
                }
            }
        })?;
        if let (Outcome::Ok, Some(run)) = (served.outcome, &served.run) {
            let alone = self.trace.phases(invocation).iter().map(|phase| phase.duration).sum();
            self.slowdowns.add(function.class, run.ended - invocation.arrival, alone);
        }
        self.written += 1;
        if self.written.is_multiple_of(ROWS_PER_TICK) { self.invocations.tick() } else { Ok(()) }
    }

    fn instance(&mut self, life: &Life) -> Result<(), RecordError> {
        let function = &self.functions[life.function];
        let row = Instance {
            run: Some(self.words.run.clone()),
            platform: Some(self.words.platform.clone()),
            function: function.name.clone(),
            instance: text(&format!("{}{}", self.prefix, life.instance)),
            worker: Some(self.workers[life.worker].clone()),
            cgroup: None,
            started: time(life.started),
            initialized: life.initialized.map(time),
            ended: life.ended.map(|(at, _)| time(at)),
            end_reason: life.ended.map(|(_, reason)| text(end_reason(reason))),
            start: Some(self.words.cold.clone()),
            allocated_cpu: Some(time(function.allocation.cpu)),
            allocated_memory: Some(time(function.allocation.memory)),
            invocations: Some(time(life.invocations)),
            idle: Some(life.idle.iter().map(|(start, end)| (time(*start), time(*end))).collect()),
            idle_cpu: Some(0),
            hint_idle: self.reads_hints.then(|| time(life.hint_idle)),
        };
        self.lives.push(&row)
    }

    fn interval(&mut self, interval: &Interval) -> Result<(), RecordError> {
        let totals = &interval.totals;
        let span = (interval.end - interval.start) as f64;
        let counters = [
            // Less than all of it where the worker was gone for a while.
            ("cpu_available_micro_vcpu", totals.cpu_capacity),
            ("memory_available_bytes", totals.memory_capacity),
            ("cpu_used_micro_vcpu", totals.cpu_used()),
            ("cpu_reserved_micro_vcpu", totals.cpu_reserved),
            ("cpu_borrowed_micro_vcpu", totals.cpu_borrowed),
            ("cpu_lent_micro_vcpu", totals.cpu_lent),
            ("memory_used_bytes", totals.memory_used),
            ("memory_idle_bytes", totals.memory_idle),
            ("memory_reserved_bytes", totals.memory_reserved),
            ("memory_lent_bytes", totals.memory_lent),
        ];
        for (counter, integral) in counters {
            let row = Machine {
                run: Some(self.words.run.clone()),
                time: time(interval.end),
                counter: text(counter),
                cgroup: None,
                worker: Some(self.workers[interval.worker].clone()),
                value: integral as f64 / span,
                ..Machine::default()
            };
            self.machine.push(&row)?;
        }
        Ok(())
    }
}

fn rejected(reason: Rejection) -> &'static str {
    match reason {
        Rejection::FunctionLimit => "as many requests of the function are in flight as may be",
        Rejection::WorkerLimit => "no worker takes it",
        Rejection::TooLarge => "no worker is large enough",
        Rejection::StartFailed(_) => "its instance did not start",
        Rejection::NoFunction => "there is no such function",
        Rejection::ShuttingDown => "the platform is shutting down",
    }
}

fn end_reason(gone: Gone) -> &'static str {
    match gone {
        Gone::WorkerFailed => "crash",
        Gone::Stopped(StopReason::KeepAlive) => "keep_alive",
        Gone::Stopped(StopReason::ScaledDown) => "scaled_down",
        Gone::Stopped(StopReason::Evicted) => "evicted",
        Gone::Stopped(StopReason::Preempted) => "preempted",
        Gone::Stopped(StopReason::Update) => "update",
        Gone::Stopped(StopReason::Delete) => "delete",
        Gone::Stopped(StopReason::Drained) => "drained",
        Gone::Stopped(StopReason::Shutdown) => "shutdown",
    }
}
