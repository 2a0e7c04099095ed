//! Turns what the sending thread hands over into rows on disk, and tells how the run goes.

use std::collections::HashSet;
use std::iter::Peekable;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uncia_clock::Moment;
use uncia_record::{Epoch, Invocation, RecordError, Span, StreamWriter, Table};

use super::batch::{Batch, Completion, Inbox, Received};
use super::hops::{Hop, Hops};
use super::interpret::Explained;
use super::make::RowMaker;
use super::rules::{Observed, Rules, Stopped, Watch};
use super::statistics::Statistics;
use crate::clock::Clock;
use crate::error::LoadError;
use crate::event::{Event, Failure, Progress};
use crate::plan::{Plan, Schedule};
use crate::stop::{Stop, Urgency};

/// Often enough for a progress bar to look alive.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// How often the tables are asked whether rows wait too long.
const TICK: Duration = Duration::from_millis(100);

/// Distinct errors that are explained.
const MAX_FAILURES: usize = 20;

/// What the sending thread has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Requests that were acted upon.
    pub sent: AtomicU64,
    /// Those of them that are over.
    pub ended: AtomicU64,
}

/// How much of the schedule has come due, whatever was sent of it.
struct Due {
    /// None when a closed loop has no schedule.
    schedule: Option<Peekable<Schedule>>,
    count: u64,
}

impl Due {
    fn new(plan: &Plan) -> Self {
        Self { schedule: plan.total().map(|_| plan.schedule().peekable()), count: 0 }
    }

    /// The requests that are due within `passed` after the start of the schedule.
    fn within(&mut self, passed: i64) -> Option<u64> {
        let schedule = self.schedule.as_mut()?;
        while schedule.next_if(|entry| entry.at <= passed).is_some() {
            self.count += 1;
        }
        Some(self.count)
    }
}

/// Writes the tables of a run.
pub(crate) struct Recorder<'a> {
    plan: &'a Plan,
    /// Counts from the start of the schedule.
    clock: Clock,
    maker: RowMaker<'a>,
    invocations: StreamWriter<Invocation>,
    spans: Option<StreamWriter<Span>>,
    statistics: Statistics,
    /// None: no rule applies.
    watch: Option<Watch>,
    stopped: Option<Stopped>,
    failures: Failures,
    hops: Hops,
    epoch: Epoch,
}

/// The first invocations that failed with distinct errors.
#[derive(Default)]
struct Failures {
    seen: HashSet<String>,
    /// Not reported yet.
    waiting: Vec<Failure>,
}

impl Failures {
    fn add(&mut self, row: &Invocation, explained: Explained) {
        if self.seen.len() == MAX_FAILURES {
            return;
        }
        // Numbers tell requests apart, not errors.
        let error = row.error.as_deref().unwrap_or_default();
        let mut key: String = error.chars().filter(|it| !it.is_ascii_digit()).collect();
        key.insert_str(0, &row.function);
        if self.seen.insert(key) {
            self.waiting.push(Failure {
                invocation: row.invocation.clone(),
                function: row.function.to_string(),
                trace: explained.trace,
                output: explained.output,
            });
        }
    }
}

/// What a recorder leaves besides the tables.
pub(crate) struct Closed {
    pub statistics: Statistics,
    /// The rule that ended the run.
    pub stopped: Option<Stopped>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn create(
        plan: &'a Plan,
        epoch: Epoch,
        start_unix_ns: i64,
        out: &Path,
        spans_out: Option<&Path>,
    ) -> Result<Self, RecordError> {
        let invocations = StreamWriter::create(out, epoch)?;
        let spans = spans_out.map(|path| StreamWriter::create(path, epoch)).transpose();
        let spans = spans.inspect_err(|_| {
            // A run that does not begin leaves nothing behind; the error at hand says why.
            let _ = std::fs::remove_file(out);
        })?;
        Ok(Self {
            plan,
            clock: Clock::since(Epoch::from_unix_ns(start_unix_ns), Moment::exact()),
            maker: RowMaker::new(plan, epoch),
            invocations,
            spans,
            statistics: Statistics::new(),
            watch: None,
            stopped: None,
            failures: Failures::default(),
            hops: Hops::default(),
            epoch,
        })
    }

    /// Has the run end early by these rules.
    pub(crate) fn watch(&mut self, rules: Rules) {
        self.watch = Some(Watch::new(rules));
    }

    /// Records until the sending thread has ended. When rows can't be kept, or a rule says so, it
    /// stops the run.
    pub(crate) fn run(
        &mut self,
        inbox: &Inbox,
        counters: &Counters,
        stop: &Stop,
        on_event: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<(), LoadError> {
        let began = Instant::now();
        let mut due = Due::new(self.plan);
        let (mut reported, mut then) = (began, (0, Some(0)));
        let mut failed = None;
        loop {
            let received = inbox.receive(TICK);
            let result = match received {
                Received::End => break,
                Received::Nothing => self.tick(),
                // After a failure the rest is received and dropped, so that nobody blocks.
                Received::Batch(_) if failed.is_some() => Ok(()),
                Received::Batch(batch) => {
                    let result = self.record(&batch, stop);
                    inbox.give_back(batch);
                    result
                }
            };
            if let Err(error) = result {
                failed.get_or_insert(error);
                stop.abort();
            }
            for failure in self.failures.waiting.drain(..) {
                on_event(&Event::Failure(failure));
            }
            let now = Instant::now();
            let since = now - reported;
            if since >= PROGRESS_INTERVAL {
                let passed = self.clock.now();
                let counts = (counters.sent.load(Ordering::Relaxed), due.within(passed));
                let rate = |now: u64, then: u64| (now - then) as f64 / since.as_secs_f64();
                let target = counts.1.zip(then.1).map(|(now, then)| rate(now, then));
                let rates = (rate(counts.0, then.0), target);
                (reported, then) = (now, counts);
                on_event(&Event::Progress(self.progress(now - began, counters, rates)));
            }
        }
        failed.map_or(Ok(()), |error| Err(LoadError::Record(error)))
    }

    fn tick(&mut self) -> Result<(), RecordError> {
        self.invocations.tick()?;
        self.spans.as_mut().map_or(Ok(()), StreamWriter::tick)
    }

    /// Writes a batch; asks for the end of the run if a rule says so.
    fn record(&mut self, batch: &Batch, stop: &Stop) -> Result<(), RecordError> {
        if stop.urgency() != Urgency::None {
            // The run is ending, and what it cuts off is no failure of the system's.
            self.watch = None;
        }
        self.write(batch)?;
        if self.stopped.is_some() && self.watch.take().is_some() {
            stop.rule();
        }
        Ok(())
    }

    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), RecordError> {
        let mut row = Invocation::default();
        for (completion, head, body) in batch.iter() {
            if RowMaker::is_plain(completion, head, body) {
                let maker = &self.maker;
                self.invocations.push_with(|to, row| maker.set_plain(to, row, completion))?;
                self.observe(completion, "ok");
            } else {
                let mut reported = self.maker.fill(&mut row, completion, head, body);
                self.invocations.push_with(|to, _| row.set(to))?;
                self.write_hops(&row, std::mem::take(&mut reported.hops))?;
                if let Some(spans) = &mut self.spans {
                    reported
                        .handler
                        .iter()
                        .chain(&reported.further)
                        .try_for_each(|span| spans.push(span))?;
                }
                self.observe(completion, &row.outcome);
                if let Some(explained) = reported.explained {
                    self.failures.add(&row, explained);
                }
            }
        }
        self.tick()
    }

    /// Writes what the function reports of a chain that begins with `root`.
    fn write_hops(&mut self, root: &Invocation, hops: Vec<Hop>) -> Result<(), RecordError> {
        for (row, spans) in self.hops.take(root, hops, self.epoch) {
            self.invocations.push_with(|to, _| row.set(to))?;
            if let Some(table) = &mut self.spans {
                spans.iter().try_for_each(|span| table.push(span))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn observe(&mut self, completion: &Completion, outcome: &str) {
        self.statistics.add(completion, outcome);
        if let (Some(watch), None) = (&mut self.watch, &self.stopped) {
            let &Completion { scheduled, sent, received, .. } = completion;
            self.stopped = watch.add(Observed { ok: outcome == "ok", scheduled, sent, received });
        }
    }

    fn progress(
        &self,
        elapsed: Duration,
        counters: &Counters,
        rates: (f64, Option<f64>),
    ) -> Progress {
        let statistics = &self.statistics;
        let latency = statistics.latency_ms();
        let sent = counters.sent.load(Ordering::Relaxed);
        let ended = counters.ended.load(Ordering::Relaxed);
        Progress {
            elapsed_s: elapsed.as_secs_f64(),
            scheduled: self.plan.total(),
            sent,
            done: ended,
            in_flight: sent.saturating_sub(ended),
            ok: statistics.ok,
            failed: statistics.failed.clone(),
            rate: rates.0,
            target_rate: rates.1,
            p50_ms: latency.as_ref().and_then(|quantiles| quantiles.p50),
            p99_ms: latency.as_ref().and_then(|quantiles| quantiles.p99),
            lag_p99_us: statistics.lag_us().and_then(|quantiles| quantiles.p99),
        }
    }

    /// Writes what remains and ends the tables.
    pub(crate) fn close(self) -> Result<Closed, RecordError> {
        self.invocations.close()?;
        if let Some(spans) = self.spans {
            spans.close()?;
        }
        Ok(Closed { statistics: self.statistics, stopped: self.stopped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Entry;
    use crate::rows::batch::channel;
    use crate::rows::failure::Failure;
    use crate::rows::support;
    use crate::stop::Signal;

    /// Records 10 failures under an error budget of 2 of 10.
    fn fail(stop: &Stop) -> (u64, Option<Stopped>) {
        let plan = support::plan(1, true);
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("rows.arrows");
        let mut recorder = Recorder::create(&plan, Epoch::UNIX, 0, &out, None).unwrap();
        let rules = Rules { error_budget: Some(0.2), scheduled: 10, ..Rules::default() };
        recorder.watch(rules);
        let (mut outbox, inbox) = channel();
        for number in 0..10 {
            let entry = Entry { at: 0, stream: 0, number, burst: None };
            let mut completion = Completion::new(entry, Some(0), 0);
            completion.failure = Some(Failure::Interrupted.into());
            outbox.push(completion, b"", b"", 0);
            outbox.hand_over();
        }
        drop(outbox);
        recorder.run(&inbox, &Counters::default(), stop, &mut |_| {}).unwrap();
        let Closed { statistics, stopped } = recorder.close().unwrap();
        let mut rows = 0;
        let (_, whole) = uncia_record::read_stream(&out, |batch| {
            rows += batch.num_rows() as u64;
            Ok(())
        })
        .unwrap();
        assert!(whole);
        assert_eq!(statistics.failed["transport_error"], rows);
        (rows, stopped)
    }

    #[test]
    fn a_rule_ends_the_run_and_every_row_is_kept() {
        let stop = Stop::new().unwrap();
        let (rows, stopped) = fail(&stop);
        assert_eq!((rows, stop.urgency(), stop.first_signal()), (10, Urgency::Drain, None));
        let stopped = stopped.unwrap();
        assert_eq!(stopped.rule, "error_budget");
        assert!(stopped.message.starts_with("3 of 10 scheduled requests have failed"));
    }

    #[test]
    fn what_a_signal_cuts_off_breaks_no_rule() {
        let stop = Stop::new().unwrap();
        stop.signal(Signal::Interrupt);
        assert_eq!(fail(&stop), (10, None));
    }

    #[test]
    fn each_error_is_explained_once_and_not_every_one() {
        let mut failures = Failures::default();
        for number in 0..100 {
            for error in ["no 7 of {}", "boom"] {
                let row = Invocation {
                    invocation: format!("i-{number}"),
                    error: Some(error.replace("{}", &number.to_string())),
                    ..Invocation::default()
                };
                failures.add(&row, Explained::default());
            }
        }
        let invocations: Vec<_> = failures.waiting.iter().map(|it| &it.invocation).collect();
        assert_eq!(invocations, ["i-0", "i-0"]);
        for letter in 'a'..='z' {
            let row = Invocation { error: Some(letter.into()), ..Invocation::default() };
            failures.add(&row, Explained::default());
        }
        assert_eq!(failures.waiting.len(), MAX_FAILURES);
    }
}
