//! The loop: samples every monitor when it is due, counts what that costs and what was missed.

use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use serde::Serialize;
use uncia_clock::{Moment, NS_PER_S, monotonic_ns, thread_cpu_ns};
use uncia_record::{Epoch, Machine, StreamWriter, Text};

use crate::MonitorError;
use crate::config::Config;
use crate::monitors::{self, Monitor};
use crate::samples::{Sample, Samples};

/// How often a monitor's own cost is reported.
const COST_EVERY_NS: i64 = NS_PER_S;
/// Rows reach the disk twice a second, even if no monitor is due.
const TICK_NS: i64 = NS_PER_S / 2;
const NS_PER_MS: i64 = 1_000_000;
/// An interval becomes no longer than this for the sake of a budget.
const LONGEST_INTERVAL_NS: i64 = 10 * NS_PER_S;
/// Sentences of one monitor; more of them say nothing new.
const MOST_WARNINGS: u32 = 20;

/// What whoever started the monitors is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Of monitors that another machine starts: they can be asked for now.
    Ready {
        /// Of the engine.
        version: String,
        /// What rows may call this machine.
        hostname: String,
        /// The kernel's release.
        kernel: String,
        /// How many CPUs may be used.
        cpus: usize,
    },
    /// The answer to a question for the time.
    Clock {
        /// Of the question.
        id: u64,
        /// When it came, by the clock of the rows, in ns of Unix time.
        received_unix_ns: i64,
        /// When this answer left, by the same clock.
        sent_unix_ns: i64,
    },
    /// A monitor does not work here, and why.
    Unsupported {
        /// Which.
        monitor: String,
        /// A sentence.
        message: String,
    },
    /// The others watch from now on.
    Started {
        /// Which.
        monitors: Vec<String>,
    },
    /// Something that a reader of the rows should know.
    Warning {
        /// Of which monitor.
        monitor: String,
        /// A sentence.
        message: String,
    },
    /// The rows are whole.
    Done {
        /// How many.
        rows: u64,
    },
}

/// What monitors are asked for while they watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// A last sample, and the end.
    Stop,
    /// Rows of what was measured of this machine's clock.
    Clock {
        /// By how many ns it is ahead of that of the machine that started the monitors.
        offset_ns: i64,
        /// By how many ns the offset may be wrong either way.
        error_ns: i64,
    },
}

/// A monitor while it watches.
struct Running {
    name: String,
    monitor: Box<dyn Monitor>,
    interval: i64,
    due: i64,
    /// When it was last sampled.
    sampled: Option<i64>,
    /// CPU time in ns and samples lost since they were last reported, and when that was.
    cpu: i64,
    lost: u64,
    reported: i64,
    warnings: u32,
    /// The share of a CPU that it may use.
    budget: Option<f64>,
}

/// Watches until it is asked to stop, or nobody is left to ask.
///
/// # Errors
/// The configuration asks for what cannot be, or rows cannot be written.
pub fn run(
    config: &Config,
    requests: &Receiver<Request>,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(), MonitorError> {
    let Some(out) = &config.out else {
        return Err(MonitorError::Config("the configuration names no file for rows: out".into()));
    };
    let file = StreamWriter::create(out, Epoch::from_unix_ns(config.epoch_unix_ns))?;
    watch(config, file, Moment::exact(), requests, on_event)
}

/// As [`run`], into a file that is open; rows are stamped by `moment`.
pub(crate) fn run_into(
    config: &Config,
    (file, name): (File, &Path),
    moment: Moment,
    requests: &Receiver<Request>,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(), MonitorError> {
    let file = StreamWriter::new(file, name, Epoch::from_unix_ns(config.epoch_unix_ns))?;
    watch(config, file, moment, requests, on_event)
}

fn watch(
    config: &Config,
    file: StreamWriter<Machine>,
    moment: Moment,
    requests: &Receiver<Request>,
    on_event: &mut dyn FnMut(&Event),
) -> Result<(), MonitorError> {
    // Some monitors keep a dozen files open for each group.
    let _ = uncia_process::descriptors::raise_limit();
    let mut rows = Rows {
        run: config.run.as_deref().map(Text::from),
        host: config.host.as_deref().map(Text::from),
        epoch: config.epoch_unix_ns,
        moment,
        file,
        count: 0,
    };
    let now = monotonic_ns();
    let mut running = Vec::new();
    for asked in &config.monitors {
        let name = asked.name().to_owned();
        match monitors::make(asked, config) {
            Ok(monitor) => running.push(Running {
                name,
                interval: asked.interval_ns.max(monitor.shortest_ns()),
                monitor,
                due: now,
                sampled: None,
                cpu: 0,
                lost: 0,
                reported: now,
                warnings: 0,
                budget: asked.budget,
            }),
            Err(why) => {
                on_event(&Event::Unsupported { monitor: name, message: why });
            }
        }
    }
    let end = config.duration_ns.map(|duration| now.saturating_add(duration));
    for it in &mut running {
        it.sample(false, &mut rows, on_event)?;
    }
    on_event(&Event::Started { monitors: running.iter().map(|it| it.name.clone()).collect() });
    loop {
        let tick = monotonic_ns() + TICK_NS;
        let next = running.iter().map(|it| it.due).chain(end).fold(tick, i64::min);
        let wait = Duration::from_nanos((next - monotonic_ns()).max(0).cast_unsigned());
        let is_stopped = match requests.recv_timeout(wait) {
            Ok(Request::Stop) | Err(RecvTimeoutError::Disconnected) => true,
            Ok(Request::Clock { offset_ns, error_ns }) => {
                rows.push_clock(offset_ns, error_ns)?;
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
        };
        let now = monotonic_ns();
        if is_stopped || end.is_some_and(|end| now >= end) {
            break;
        }
        for it in running.iter_mut().filter(|it| it.due <= now) {
            it.sample(false, &mut rows, on_event)?;
        }
        rows.file.tick()?;
    }
    for it in &mut running {
        it.sample(true, &mut rows, on_event)?;
    }
    let count = rows.count;
    let closed = rows.file.close();
    // They may take long, and no monitor is to wait for those of others.
    for it in &mut running {
        if let Some(message) = it.monitor.after() {
            on_event(&Event::Warning { monitor: it.name.clone(), message });
        }
    }
    closed?;
    on_event(&Event::Done { rows: count });
    Ok(())
}

impl Running {
    fn sample(
        &mut self,
        last: bool,
        rows: &mut Rows,
        on_event: &mut dyn FnMut(&Event),
    ) -> Result<(), MonitorError> {
        let (now, cpu) = (monotonic_ns(), thread_cpu_ns());
        let mut samples = Samples { now, before: self.sampled, ..Samples::default() };
        if last {
            self.monitor.finish(&mut samples);
        } else {
            self.monitor.sample(&mut samples);
        }
        self.sampled = Some(now);
        let name: Text = self.name.as_str().into();
        for sample in samples.rows.drain(..) {
            rows.push(&name, now, sample)?;
        }
        self.cpu += thread_cpu_ns() - cpu + samples.programs_cpu;
        self.lost += samples.lost + self.schedule(monotonic_ns());
        if last || now - self.reported >= COST_EVERY_NS {
            samples.warnings.extend(self.keep_to_budget(now));
            self.tell_cost(&name, now, rows)?;
        }
        for message in samples.warnings {
            self.warnings += 1;
            if self.warnings <= MOST_WARNINGS {
                on_event(&Event::Warning { monitor: self.name.clone(), message });
            }
        }
        Ok(())
    }

    /// Sets when it is due next; gives how many times have passed meanwhile.
    fn schedule(&mut self, now: i64) -> u64 {
        self.due += self.interval;
        let missed = ((now - self.due) / self.interval).max(0);
        self.due += missed * self.interval;
        missed.cast_unsigned()
    }

    /// Lengthens its interval where it used more than its budget since that was looked at last; says so.
    fn keep_to_budget(&mut self, now: i64) -> Option<String> {
        let passed = (now - self.reported).max(1);
        let (budget, used) = (self.budget?, self.cpu as f64 / passed as f64);
        let longer = longer_interval(self.interval, used / budget)?;
        let ms = |ns: i64| ns as f64 / 1e6;
        let sentence = format!(
            "it took {:.1} % of a CPU, more than its budget of {:.1} %: its interval is now {:.0} ms, not {:.0}",
            100.0 * used,
            100.0 * budget,
            ms(longer),
            ms(self.interval)
        );
        self.due += longer - self.interval;
        self.interval = longer;
        Some(sentence)
    }

    fn tell_cost(&mut self, name: &Text, now: i64, rows: &mut Rows) -> Result<(), MonitorError> {
        let interval = now - self.reported;
        if interval <= 0 {
            return Ok(());
        }
        for (counter, value) in
            [("monitor.cpu_ns", self.cpu as f64), ("monitor.lost_count", self.lost as f64)]
        {
            let interval = Some(interval);
            let counter = counter.into();
            let sample = Sample { counter, group: None, cpu: None, interval, value, at: None };
            rows.push(name, now, sample)?;
        }
        let counter = "monitor.interval_ns".into();
        let value = self.interval as f64;
        let sample = Sample { counter, group: None, cpu: None, interval: None, value, at: None };
        rows.push(name, now, sample)?;
        (self.cpu, self.lost, self.reported) = (0, 0, now);
        Ok(())
    }
}

/// The interval of a monitor that used this many times its budget, in whole ms; none if it kept to it, or has the
/// longest there is.
fn longer_interval(interval: i64, excess: f64) -> Option<i64> {
    let wanted = (interval as f64 * excess / NS_PER_MS as f64).ceil() * NS_PER_MS as f64;
    let longer = (wanted as i64).min(LONGEST_INTERVAL_NS);
    (excess > 1.0 && longer > interval).then_some(longer)
}

/// Where rows go.
struct Rows {
    run: Option<Text>,
    host: Option<Text>,
    epoch: i64,
    moment: Moment,
    file: StreamWriter<Machine>,
    count: u64,
}

impl Rows {
    fn push_clock(&mut self, offset_ns: i64, error_ns: i64) -> Result<(), MonitorError> {
        let (name, now): (Text, i64) = ("clock".into(), monotonic_ns());
        for (counter, ns) in [("clock.offset_ns", offset_ns), ("clock.error_ns", error_ns)] {
            let (counter, value) = (counter.into(), ns as f64);
            let sample =
                Sample { counter, group: None, cpu: None, interval: None, value, at: None };
            self.push(&name, now, sample)?;
        }
        Ok(())
    }

    fn push(&mut self, monitor: &Text, now: i64, sample: Sample) -> Result<(), MonitorError> {
        self.count += 1;
        let row = Machine {
            run: self.run.clone(),
            time: self.moment.at(sample.at.unwrap_or(now)).unix() - self.epoch,
            counter: sample.counter,
            cgroup: sample.group,
            value: sample.value,
            host: self.host.clone(),
            monitor: Some(monitor.clone()),
            cpu: sample.cpu,
            interval: sample.interval,
            ..Machine::default()
        };
        Ok(self.file.push(&row)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_become_longer_as_far_as_a_budget_asks() {
        assert_eq!(longer_interval(100_000_000, 1.0), None);
        assert_eq!(longer_interval(100_000_000, 0.2), None);
        assert_eq!(longer_interval(100_000_000, 2.504), Some(251_000_000));
        assert_eq!(longer_interval(100_000_000, 1e9), Some(LONGEST_INTERVAL_NS));
        assert_eq!(longer_interval(LONGEST_INTERVAL_NS, 3.0), None);
    }
}
