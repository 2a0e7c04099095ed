//! Turns what the sending thread hands over into rows on disk, and tells how the run goes.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uncia_record::{Epoch, Invocation, RecordError, Span, StreamWriter};

use super::batch::{Batch, Completion, Inbox, Received};
use super::interpret;
use super::statistics::Statistics;
use crate::error::LoadError;
use crate::event::{Event, Progress};
use crate::plan::Plan;
use crate::stop::Stop;

/// Often enough for a progress bar to look alive.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// How often the tables are asked whether rows wait too long.
const TICK: Duration = Duration::from_millis(100);

/// What the sending thread has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests that were acted upon.
    pub sent: AtomicU64,
    /// Those of them that are over.
    pub ended: AtomicU64,
}

/// Writes the tables of a run.
pub struct Recorder<'a> {
    plan: &'a Plan,
    epoch: Epoch,
    invocations: StreamWriter<Invocation>,
    spans: Option<StreamWriter<Span>>,
    /// One for each stream: the columns that are alike in all its rows.
    templates: Vec<Invocation>,
    statistics: Statistics,
}

impl<'a> Recorder<'a> {
    pub fn create(
        plan: &'a Plan,
        epoch: Epoch,
        out: &Path,
        spans_out: Option<&Path>,
    ) -> Result<Self, RecordError> {
        let templates = plan.streams.iter().enumerate().map(|(index, stream)| Invocation {
            run: plan.run.clone(),
            experiment: plan.experiment.clone(),
            platform: plan.platform.clone(),
            function: stream.function.clone(),
            attempt: 1,
            open_loop: Some(plan.is_open(index)),
            ..Invocation::default()
        });
        let invocations = StreamWriter::create(out, epoch)?;
        let spans = spans_out.map(|path| StreamWriter::create(path, epoch)).transpose();
        let spans = spans.inspect_err(|_| {
            // A run that does not begin leaves nothing behind; the error at hand says why.
            let _ = std::fs::remove_file(out);
        })?;
        Ok(Self {
            plan,
            epoch,
            invocations,
            spans,
            templates: templates.collect(),
            statistics: Statistics::new(),
        })
    }

    /// Records until the sending thread has ended. When rows can't be kept, it stops the run.
    pub fn run(
        &mut self,
        inbox: &Inbox,
        counters: &Counters,
        stop: &Stop,
        on_event: &mut (dyn FnMut(&Event) + Send),
    ) -> Result<(), LoadError> {
        let began = Instant::now();
        let (mut reported, mut sent_then) = (began, 0);
        let mut failed = None;
        loop {
            let received = inbox.receive(TICK);
            let result = match received {
                Received::End => break,
                Received::Nothing => self.tick(),
                // After a failure the rest is received and dropped, so that nobody blocks.
                Received::Batch(_) if failed.is_some() => Ok(()),
                Received::Batch(batch) => {
                    let result = self.write(&batch);
                    inbox.give_back(batch);
                    result
                }
            };
            if let Err(error) = result {
                failed.get_or_insert(error);
                stop.abort();
            }
            let now = Instant::now();
            let since = now - reported;
            if since >= PROGRESS_INTERVAL {
                let sent = counters.sent.load(Ordering::Relaxed);
                let rate = (sent - sent_then) as f64 / since.as_secs_f64();
                (reported, sent_then) = (now, sent);
                on_event(&Event::Progress(self.progress(now - began, counters, rate)));
            }
        }
        failed.map_or(Ok(()), |error| Err(LoadError::Record(error)))
    }

    fn tick(&mut self) -> Result<(), RecordError> {
        self.invocations.tick()?;
        self.spans.as_mut().map_or(Ok(()), StreamWriter::tick)
    }

    fn write(&mut self, batch: &Batch) -> Result<(), RecordError> {
        for (completion, head, body) in batch.iter() {
            let mut row = self.row(completion);
            let span = interpret::fill(&mut row, completion, head, body, self.epoch);
            self.statistics.add(&row);
            self.invocations.push(&row)?;
            if let (Some(spans), Some(span)) = (&mut self.spans, span) {
                spans.push(&span)?;
            }
        }
        self.tick()
    }

    fn row(&self, completion: &Completion) -> Invocation {
        let entry = &completion.entry;
        Invocation {
            invocation: self.plan.invocation(entry),
            burst: entry.burst,
            scheduled: Some(completion.scheduled),
            sent: Some(completion.sent),
            connected: completion.connected,
            first_byte: completion.first_byte,
            received: completion.received,
            connection_reused: completion.reused,
            request_bytes: completion.request_bytes,
            response_bytes: completion.response_bytes.and_then(|bytes| i64::try_from(bytes).ok()),
            status: completion.status.map(i64::from),
            ..self.templates[entry.stream].clone()
        }
    }

    fn progress(&self, elapsed: Duration, counters: &Counters, rate: f64) -> Progress {
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
            rate,
            p50_ms: latency.as_ref().map(|quantiles| quantiles.p50),
            p99_ms: latency.as_ref().map(|quantiles| quantiles.p99),
            lag_p99_us: statistics.lag_us().map(|quantiles| quantiles.p99),
        }
    }

    /// Writes what remains and ends the tables.
    pub fn close(self) -> Result<Statistics, RecordError> {
        self.invocations.close()?;
        if let Some(spans) = self.spans {
            spans.close()?;
        }
        Ok(self.statistics)
    }
}
