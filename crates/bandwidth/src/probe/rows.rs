//! The tables of a profile.

use std::path::Path;

use nix::time::{ClockId, clock_gettime};
use uncia_record::{Epoch, Invocation, Machine, RecordError, Span, StreamWriter, Text};

use super::child::Run;
use super::machine;
use super::watch;
use crate::Nanos;
use crate::cgroup::Readings;

/// Pairs of readings from which the closest is taken, for an interruption between the two would
/// shift every time.
const OFFSET_SAMPLES: usize = 16;

/// The names of a run's stretch and of its jumps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names {
    pub experiment: &'static str,
    pub stretch: &'static str,
    pub jump: &'static str,
}

/// Jumps under the quota.
pub(super) const PROFILE: Names =
    Names { experiment: "profile", stretch: "probe", jump: "throttle" };

/// Jumps without a quota, which nothing but the machine explains.
pub(super) const BASELINE: Names =
    Names { experiment: "unthrottled", stretch: "baseline", jump: "preemption" };

/// Writes the rows of a profile.
pub(super) struct Tables {
    run: Text,
    function: Text,
    group: Text,
    allocated: Option<i64>,
    /// From the monotonic clock to the run's epoch.
    offset: i64,
    pub epoch: Epoch,
    /// The same moment by the monotonic clock, whose zero is that of the kernel's own timers.
    pub epoch_monotonic: Nanos,
    invocations: StreamWriter<Invocation>,
    spans: StreamWriter<Span>,
    machine: StreamWriter<Machine>,
    number: u64,
}

impl Tables {
    /// Makes the tables in a folder; `group` names the control group, `micro_vcpu` is its share.
    pub(super) fn create(
        out: &Path,
        run: &str,
        function: &str,
        group: &Path,
        micro_vcpu: Option<u64>,
    ) -> Result<Self, RecordError> {
        let offset = unix_offset();
        let epoch_monotonic = watch::now();
        let epoch = Epoch::from_unix_ns(signed(epoch_monotonic) + offset);
        let paths = ["invocations", "spans", "machine"].map(|it| out.join(format!("{it}.arrows")));
        Ok(Self {
            run: run.into(),
            function: function.into(),
            group: group.to_string_lossy().as_ref().into(),
            allocated: micro_vcpu.and_then(|micro| i64::try_from(micro).ok()),
            offset: offset - epoch.unix_ns(),
            epoch,
            epoch_monotonic,
            invocations: StreamWriter::create(&paths[0], epoch)?,
            spans: StreamWriter::create(&paths[1], epoch)?,
            machine: StreamWriter::create(&paths[2], epoch)?,
            number: 0,
        })
    }

    /// The control group that rows are of from now on.
    pub(super) fn enter(&mut self, group: &Path) {
        self.group = group.to_string_lossy().as_ref().into();
    }

    /// Adds a run: a row of its own, its spans, and its loop's counters.
    pub(super) fn add(&mut self, run: &Run, names: Names) -> Result<(), RecordError> {
        let invocation = format!("{}-{:06}", names.experiment, self.number);
        self.number += 1;
        let (start, end) = (self.time(run.watched.start), self.time(run.watched.end));
        let counts = run.throttling.map(|it| (it.count, it.ns));
        let run_name = self.run.clone();
        let span = |name: &str, start: i64, end: i64| Span {
            run: Some(run_name.clone()),
            invocation: Some(invocation.clone()),
            instance: None,
            name: name.into(),
            start,
            end,
            clock: "function".into(),
        };
        self.spans.push(&span(names.stretch, start, end))?;
        for (seen, gap) in &run.jumps {
            let end = self.time(*seen);
            self.spans.push(&span(names.jump, end - signed(*gap), end))?;
        }
        let due = self.invocations.gather(&Invocation {
            run: Some(self.run.clone()),
            experiment: Some(names.experiment.into()),
            function: self.function.clone(),
            invocation: invocation.clone(),
            attempt: 1,
            outcome: "ok".into(),
            started: Some(start),
            ended: Some(end),
            execution: Some(end - start),
            allocated_cpu: self.allocated.filter(|_| names.experiment == PROFILE.experiment),
            cpu_user: Some(signed(run.cpu - run.system)),
            cpu_system: Some(signed(run.system)),
            throttled_count: counts.map(|(count, _)| count),
            throttled_time: counts.map(|(_, time)| time),
            ..Invocation::default()
        });
        if due {
            // If this process is killed now, no run is seen without its throttles.
            self.spans.flush()?;
            self.invocations.flush()?;
        }
        self.count(end, "probe.loops", Some(run.watched.loops))?;
        self.count(end, "probe.clock_step_ns", run.least_step)?;
        self.count(end, "probe.loop_p50_ns", run.median_step)?;
        self.count(end, "probe.loop_p99_ns", run.high_step)?;
        self.count(end, "probe.involuntary_switches", Some(run.involuntary_switches))?;
        self.count(end, "probe.page_faults", Some(run.faults))?;
        self.count(end, "probe.periods", run.throttling.map(|it| it.periods))
    }

    /// Adds what the kernel counts of the group, and of the machine, now.
    pub(super) fn add_readings(&mut self, readings: &Readings) -> Result<(), RecordError> {
        let now = self.time(watch::now());
        let (throttling, bursts) = (readings.throttling, readings.bursts);
        self.count(now, "cpu.nr_periods", throttling.map(|it| it.periods))?;
        self.count(now, "cpu.nr_throttled", throttling.map(|it| it.count))?;
        self.count(now, "cpu.throttled_ns", throttling.map(|it| it.ns))?;
        self.count(now, "cpu.usage_ns", readings.cpu.map(|it| it.total))?;
        self.count(now, "cpu.nr_bursts", bursts.map(|it| it.count))?;
        self.count(now, "cpu.burst_ns", bursts.map(|it| it.ns))?;
        if let Some(steal) = machine::steal_ns() {
            self.push(now, "cpu.steal_ns", None, steal)?;
        }
        Ok(())
    }

    fn count(
        &mut self,
        time: i64,
        counter: &str,
        value: Option<impl TryInto<u64>>,
    ) -> Result<(), RecordError> {
        let group = self.group.clone();
        let value = value.and_then(|value| value.try_into().ok());
        value.map_or(Ok(()), |value| self.push(time, counter, Some(group), value))
    }

    fn push(
        &mut self,
        time: i64,
        counter: &str,
        cgroup: Option<Text>,
        value: u64,
    ) -> Result<(), RecordError> {
        let run = Some(self.run.clone());
        self.machine.push(&Machine {
            run,
            time,
            counter: counter.into(),
            cgroup,
            value: value as f64,
            ..Machine::default()
        })
    }

    /// Closes the tables.
    pub(super) fn close(self) -> Result<(), RecordError> {
        self.invocations.close()?;
        self.spans.close()?;
        self.machine.close()?;
        Ok(())
    }

    /// A time of the monotonic clock since the run's epoch.
    fn time(&self, monotonic: Nanos) -> i64 {
        signed(monotonic) + self.offset
    }
}

/// What to add to the monotonic clock for Unix time.
fn unix_offset() -> i64 {
    let unix = || {
        clock_gettime(ClockId::CLOCK_REALTIME)
            .map_or(0, |time| time.tv_sec() * 1_000_000_000 + time.tv_nsec())
    };
    let sample = || {
        let before = signed(watch::now());
        let unix = unix();
        let after = signed(watch::now());
        (after - before, unix - (before + (after - before) / 2))
    };
    let samples = (0..OFFSET_SAMPLES).map(|_| sample());
    samples.min_by_key(|(width, _)| *width).map_or(0, |(_, offset)| offset)
}

/// ns since boot or counted by the kernel: 2^63 of them are 292 years.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
