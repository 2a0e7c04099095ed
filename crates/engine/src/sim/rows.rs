//! What a simulation tells of, as rows of the tables that real runs have.

use std::sync::Arc;

use uncia_policy::{Qos, Rejection, StopReason};
use uncia_record::{Epoch, Instance, Invocation, Machine, RecordError, StreamWriter, Text};
use uncia_sim::{Integral, Interval, Life, Outcome, Run, Served, Setting, Sink, Trace};

use super::config::Configuration;

const PLATFORM: &str = "simulated";
const MICRO: Integral = 1_000_000;

/// Writes rows to the three tables.
pub(super) struct Rows<'a> {
    setting: &'a Setting,
    trace: &'a Trace,
    run: Text,
    experiment: Text,
    platform: Text,
    functions: Vec<Text>,
    workers: Vec<Text>,
    invocations: StreamWriter<Invocation>,
    instances: StreamWriter<Instance>,
    machine: StreamWriter<Machine>,
}

fn text(words: &str) -> Text {
    Arc::from(words)
}

/// Whole units of what was counted in units x ns and micro-units.
fn whole(integral: Integral) -> i64 {
    i64::try_from(integral).unwrap_or(i64::MAX)
}

fn time(ns: u64) -> i64 {
    whole(Integral::from(ns))
}

impl<'a> Rows<'a> {
    /// Creates the tables, which must not exist yet.
    pub(super) fn create(
        configuration: &Configuration,
        setting: &'a Setting,
        trace: &'a Trace,
    ) -> Result<Self, RecordError> {
        let file = |name: &str| configuration.output.join(name);
        Ok(Self {
            setting,
            trace,
            run: text(&configuration.run),
            experiment: text(&configuration.experiment),
            platform: text(PLATFORM),
            functions: setting.functions.iter().map(|it| text(&it.name)).collect(),
            // Each experiment has a cluster of its own, and rows of `machine` name no experiment.
            workers: (0..setting.workers.len())
                .map(|it| text(&format!("{}-worker-{it}", configuration.experiment)))
                .collect(),
            invocations: StreamWriter::create(&file("invocations.arrows"), Epoch::UNIX)?,
            instances: StreamWriter::create(&file("instances.arrows"), Epoch::UNIX)?,
            machine: StreamWriter::create(&file("machine.arrows"), Epoch::UNIX)?,
        })
    }

    /// Writes what remains.
    pub(super) fn close(self) -> Result<(), RecordError> {
        self.invocations.close()?;
        self.instances.close()?;
        self.machine.close()?;
        Ok(())
    }

    fn instance(&self, number: usize) -> Text {
        text(&format!("{}-{number}", self.experiment))
    }

    /// The columns of an attempt that ran.
    fn ran(&self, row: &mut Invocation, run: &Run, queued_since: u64) {
        let meter = &run.meter;
        let execution = run.ended - run.started;
        let over_time =
            |integral: Integral| integral.checked_div(Integral::from(execution)).map(whole);
        row.instance = Some(self.instance(run.instance));
        row.worker = Some(self.workers[run.worker].clone());
        row.shared = Some(false);
        row.start = Some(text(if run.initialization.is_some() { "cold" } else { "warm" }));
        row.started = Some(time(run.started));
        row.ended = Some(time(run.ended));
        row.initialization = run.initialization.map(time);
        row.queued = Some(time(run.started - queued_since - run.initialization.unwrap_or(0)));
        row.execution = Some(time(execution));
        row.cpu_user = Some(whole(meter.cpu() / MICRO));
        row.cpu_system = Some(0);
        row.memory_avg = over_time(meter.memory);
        row.memory_peak = Some(time(meter.memory_peak));
        let reserved = Integral::from(row.reserved_cpu.unwrap_or(0).cast_unsigned());
        row.reserved_cpu_time = Some(whole(reserved * Integral::from(execution) / MICRO));
        row.borrowed_cpu_time = Some(whole(meter.cpu_borrowed / MICRO));
        row.lent_cpu_time = Some(whole(meter.cpu_lent / MICRO));
        row.lent_memory_avg = over_time(meter.memory_lent);
    }
}

impl Sink for Rows<'_> {
    type Error = RecordError;

    fn served(&mut self, served: &Served) -> Result<(), RecordError> {
        let invocation = &self.trace.invocations[served.invocation];
        let settings = &self.setting.functions[invocation.function].settings;
        let (outcome, error) = match served.outcome {
            Outcome::Ok => ("ok", None),
            Outcome::Preempted => ("preempted", Some("its room was needed")),
            Outcome::Rejected(reason) => ("throttled", Some(rejected(reason))),
        };
        let mut row = Invocation {
            run: Some(self.run.clone()),
            experiment: Some(self.experiment.clone()),
            platform: Some(self.platform.clone()),
            function: self.functions[invocation.function].clone(),
            invocation: format!("{}-{}", self.experiment, served.invocation),
            attempt: i64::from(served.attempt),
            open_loop: Some(true),
            scheduled: Some(time(invocation.arrival)),
            // Once: what is preempted waits again in the platform.
            sent: Some(time(invocation.arrival)),
            outcome: text(outcome),
            error: error.map(str::to_owned),
            allocated_cpu: Some(time(settings.allocation.cpu)),
            allocated_memory: Some(time(settings.allocation.memory)),
            reserved_cpu: Some(time(settings.reservation().cpu)),
            spot_cpu: Some(time(settings.spot_cpu.min(settings.allocation.cpu))),
            preemptible: Some(settings.preemptible),
            qos: Some(text(match settings.qos {
                Qos::Interactive => "interactive",
                Qos::Batch => "batch",
            })),
            ..Invocation::default()
        };
        if let Some(run) = &served.run {
            self.ran(&mut row, run, served.arrived);
            row.received = (served.outcome == Outcome::Ok).then_some(time(run.ended));
        }
        self.invocations.push(&row)
    }

    fn instance(&mut self, life: &Life) -> Result<(), RecordError> {
        let settings = &self.setting.functions[life.function].settings;
        let row = Instance {
            run: Some(self.run.clone()),
            platform: Some(self.platform.clone()),
            function: self.functions[life.function].clone(),
            instance: Self::instance(self, life.instance),
            worker: Some(self.workers[life.worker].clone()),
            started: time(life.started),
            initialized: life.initialized.map(time),
            ended: life.ended.map(|(at, _)| time(at)),
            end_reason: life.ended.map(|(_, reason)| text(end_reason(reason))),
            start: Some(text("cold")),
            allocated_cpu: Some(time(settings.allocation.cpu)),
            allocated_memory: Some(time(settings.allocation.memory)),
            invocations: Some(time(life.invocations)),
            idle: Some(life.idle.iter().map(|(start, end)| (time(*start), time(*end))).collect()),
            idle_cpu: Some(0),
        };
        self.instances.push(&row)
    }

    fn interval(&mut self, interval: &Interval) -> Result<(), RecordError> {
        let totals = &interval.totals;
        let span = (interval.end - interval.start) as f64;
        let counters = [
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
                run: Some(self.run.clone()),
                time: time(interval.end),
                counter: text(counter),
                cgroup: None,
                worker: Some(self.workers[interval.worker].clone()),
                value: integral as f64 / span,
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
        Rejection::StartFailed(_) => "its instance did not start",
        Rejection::NoFunction => "there is no such function",
        Rejection::ShuttingDown => "the platform is shutting down",
    }
}

fn end_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::KeepAlive => "keep_alive",
        StopReason::ScaledDown => "scaled_down",
        StopReason::Evicted => "evicted",
        StopReason::Preempted => "preempted",
        StopReason::Update => "update",
        StopReason::Delete => "delete",
        StopReason::Shutdown => "shutdown",
    }
}
