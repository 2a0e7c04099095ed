//! Uncia's load generator: arrivals become requests, requests become rows.
//!
//! The loop is open, unless a stream asks for a closed one: every send time is fixed before the run,
//! and no answer delays a request.
//!
//! * [`config`]: what a run is told. `plan` checks it and makes it ready.
//! * `open_loop`: one thread that paces and does all that has to do with sockets, by means of `net`
//!   (readiness, non-blocking connects, TLS), `http1` and `http2` (both without I/O).
//! * `rows`: another thread, which makes rows of what the first hands over, writes the tables and
//!   reports progress.

mod answer;
mod clock;
pub mod config;
mod dry_run;
mod error;
pub mod event;
mod http1;
mod http2;
mod net;
mod open_loop;
mod picker;
mod plan;
mod request;
mod rows;
mod rtt;
mod stop;
mod thread;

use std::collections::BTreeMap;
use std::io;
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use uncia_clock::{Moment, NS_PER_S, process_cpu_ns};
use uncia_record::{Epoch, RecordError};

pub use config::Config;
pub use error::LoadError;
pub use event::Event;
pub use stop::{Signal, Stop};

use clock::Clock;
use config::StopRules;
use event::{Done, Start, When};
use net::Poller;
use open_loop::{Finished, OpenLoop, Output};
use plan::Plan;
use rows::{Closed, Counters, Recorder, Rules};

/// From being ready to the start of the schedule, when no start time was given: enough for the
/// threads to be running.
const START_LEAD_NS: i64 = 50_000_000;

/// Runs a configuration to its end, or until `stop` is told to stop it. Every request that was sent
/// has its row then.
///
/// `on_event` is called from one thread at a time; what it takes long for delays rows, not requests.
pub fn run(
    config: &Config,
    stop: &Stop,
    on_event: &mut (dyn FnMut(&Event) + Send),
) -> Result<Done, LoadError> {
    run_with(Poller::new, config, stop, on_event)
}

fn run_with(
    poller: fn() -> io::Result<Poller>,
    config: &Config,
    stop: &Stop,
    on_event: &mut (dyn FnMut(&Event) + Send),
) -> Result<Done, LoadError> {
    let plan = Plan::new(config)?;
    for message in &plan.warnings {
        on_event(&Event::Warning { message: message.clone() });
    }
    let done = if config.dry_run {
        write_schedule(config, &plan)?
    } else {
        send(poller, config, &plan, stop, on_event)?
    };
    on_event(&Event::Done(Box::new(done.clone())));
    Ok(done)
}

/// When the rows' time begins, and when the schedule's does.
struct Times {
    /// When this was decided: how the run's clock is set against the real-time clock.
    decided: Moment,
    epoch: Epoch,
    start_unix_ns: i64,
}

impl Times {
    fn of(config: &Config) -> Result<Self, LoadError> {
        let decided = Moment::exact();
        let now = decided.unix();
        let start_unix_ns = match config.start_unix_ns {
            Some(start) if start < now && !config.dry_run => {
                return Err(LoadError::StartPassed { late_ns: now - start });
            }
            Some(start) => start,
            None => now + START_LEAD_NS,
        };
        let epoch = Epoch::from_unix_ns(config.epoch_unix_ns.unwrap_or(start_unix_ns));
        Ok(Self { decided, epoch, start_unix_ns })
    }

    fn clock(&self) -> Clock {
        Clock::since(self.epoch, self.decided)
    }

    /// The start of the schedule on the rows' clock.
    fn start(&self) -> i64 {
        self.start_unix_ns - self.epoch.unix_ns()
    }
}

fn write_schedule(config: &Config, plan: &Plan) -> Result<Done, LoadError> {
    let began = Instant::now();
    if plan.has_clients() {
        return Err(LoadError::NoSchedule);
    }
    let times = Times::of(config)?;
    let rows = dry_run::write(plan, times.start_unix_ns, &config.out).map_err(|error| {
        if matches!(error, RecordError::Io { .. }) {
            LoadError::Create(error)
        } else {
            LoadError::Record(error)
        }
    })?;
    Ok(Done {
        rows,
        scheduled: plan.extent.total,
        sent: 0,
        unsent: plan.extent.total,
        ok: 0,
        failed: BTreeMap::new(),
        interrupted: None,
        stopped: None,
        elapsed_s: began.elapsed().as_secs_f64(),
        offered_rate: offered_rate(plan),
        achieved_rate: None,
        latency_ms: None,
        lag_us: None,
        rtt: Vec::new(),
        cpu_s: cpu_seconds(),
        out: config.out.clone(),
        spans_out: None,
    })
}

fn send(
    poller: fn() -> io::Result<Poller>,
    config: &Config,
    plan: &Plan,
    stop: &Stop,
    on_event: &mut (dyn FnMut(&Event) + Send),
) -> Result<Done, LoadError> {
    let began = Instant::now();
    let mut rtt = rtt::measure(plan, When::Before, on_event);
    let mut open_loop =
        OpenLoop::new(plan, stop, poller().map_err(LoadError::Poll)?).map_err(LoadError::Poll)?;
    open_loop.prepare()?;
    let times = Times::of(config)?;
    let spans_out = config.spans_out.as_deref();
    let mut recorder =
        Recorder::create(plan, times.epoch, times.start_unix_ns, &config.out, spans_out)
            .map_err(LoadError::Create)?;
    let StopRules { error_budget, lag_p99_ns, slowdown } = plan.stop_rules;
    let scheduled = plan.total().unwrap_or_default();
    recorder.watch(Rules { error_budget, lag_p99_ns, slowdown, scheduled });
    on_event(&Event::Start(Start {
        scheduled: plan.total(),
        epoch_unix_ns: times.epoch.unix_ns(),
        start_unix_ns: times.start_unix_ns,
        span_ns: plan.extent.last_ns,
    }));
    let counters = Counters::default();
    let (outbox, inbox) = rows::channel();
    let clock = times.clock();
    let (recorded, sent) = std::thread::scope(|scope| {
        let (writing, counting, telling) = (&mut recorder, &counters, &mut *on_event);
        let record = move || {
            thread::yield_to_others();
            writing.run(&inbox, counting, stop, telling)
        };
        let recording = std::thread::Builder::new().name("uncia-rows".to_owned());
        let recording = recording.spawn_scoped(scope, record).map_err(LoadError::Thread)?;
        let output = Output { outbox, counters: &counters };
        let sent = open_loop.run(clock, times.start(), output);
        Ok::<_, LoadError>((join(recording), sent))
    })?;
    recorded?;
    let Closed { statistics, stopped } = recorder.close().map_err(LoadError::Record)?;
    // Only now: whatever went wrong with the sockets, the rows are kept.
    let Finished { sent, later } = sent?;
    let elapsed_s = began.elapsed().as_secs_f64();
    if stop.first_signal().is_none() {
        rtt.extend(rtt::measure(plan, When::After, on_event));
    }
    // Whether a later stage is to be sent is known when it is.
    let scheduled = if plan.has_clients() { sent } else { plan.extent.total + later };
    Ok(Done {
        rows: statistics.rows,
        scheduled,
        sent,
        unsent: scheduled - sent,
        ok: statistics.ok,
        interrupted: stop.first_signal().map(Signal::name),
        stopped,
        elapsed_s,
        offered_rate: offered_rate(plan),
        achieved_rate: statistics.achieved_rate(),
        latency_ms: statistics.latency_ms(),
        lag_us: statistics.lag_us(),
        failed: statistics.failed,
        rtt,
        cpu_s: cpu_seconds(),
        out: config.out.clone(),
        spans_out: config.spans_out.clone(),
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn offered_rate(plan: &Plan) -> Option<f64> {
    plan.total()?;
    rows::rate(plan.extent.total, plan.extent.last_ns - plan.extent.first_ns)
}

fn cpu_seconds() -> f64 {
    process_cpu_ns() as f64 / NS_PER_S as f64
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// The way of systems without epoll.
    #[test]
    fn a_run_by_poll_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                    for _ in lines.filter(String::is_empty) {
                        (&stream).write_all(b"HTTP/1.1 204 No\r\n\r\n").unwrap();
                    }
                });
            }
        });
        let folder = tempfile::tempdir().unwrap();
        let arrivals = serde_json::json!(
            {"kind": "burst", "sizes": [20], "interval_ns": 20_000_000, "bursts": 10});
        let config = serde_json::from_value(serde_json::json!({
            "out": folder.path().join("rows.arrows"), "seed": 1, "streams": [{
                "function": "f", "targets": [{"function": "f", "url": url}], "arrivals": arrivals}],
        }));
        let stop = Stop::new().unwrap();
        let done =
            run_with(|| Ok(Poller::portable()), &config.unwrap(), &stop, &mut |_| {}).unwrap();
        assert_eq!((done.rows, done.ok), (200, 200));
    }
}
