//! What a run tells while it goes on: one JSON object each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

pub use crate::rows::{Quantiles, Stopped};

/// What a run reports while it goes on.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Something the person should know before the run starts.
    Warning {
        /// A sentence for people.
        message: String,
    },
    /// How long the network takes to an endpoint and back.
    Rtt(Rtt),
    /// Everything is ready, and the schedule starts.
    Start(Start),
    /// Why an invocation failed: of each distinct error the first that says so, and only the first
    /// errors.
    Failure(Failure),
    /// Counts and rates so far, about twice a second.
    Progress(Progress),
    /// The run is over.
    Done(Box<Done>),
}

/// Whether something is before the run or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Before the schedule starts.
    #[default]
    Before,
    /// After the last answer.
    After,
}

/// Round-trip times to an endpoint, as TCP's connecting takes them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Rtt {
    /// Whether the probes were sent before or after the run.
    pub when: When,
    /// The endpoint's host and port.
    pub endpoint: String,
    /// One time per probe that connected, in nanoseconds.
    pub samples_ns: Vec<i64>,
    /// Why there are no more of them.
    pub error: Option<String>,
}

/// The run is about to start.
#[derive(Debug, Clone, Serialize)]
pub struct Start {
    /// Requests in the schedule; none when answers decide that (closed loops, chains).
    pub scheduled: Option<u64>,
    /// The Unix time from which the rows count, in nanoseconds.
    pub epoch_unix_ns: i64,
    /// The Unix time at which the schedule starts, in nanoseconds.
    pub start_unix_ns: i64,
    /// From the start to the last send time.
    pub span_ns: i64,
}

/// Why an invocation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The row that it explains.
    pub invocation: String,
    /// The name of the function in the rows.
    pub function: String,
    /// Where it failed, as the function's runtime says.
    pub trace: Vec<String>,
    /// The end of what the function wrote, if it wrote anything.
    pub output: Option<String>,
}

/// How the run goes.
#[derive(Debug, Clone, Serialize)]
pub struct Progress {
    /// Seconds since everything was ready, shortly before the schedule starts.
    pub elapsed_s: f64,
    /// Requests in the whole schedule; none when answers decide that (closed loops, chains).
    pub scheduled: Option<u64>,
    /// Requests sent so far.
    pub sent: u64,
    /// Requests that were answered or have failed.
    pub done: u64,
    /// Requests sent that are neither answered nor failed yet.
    pub in_flight: u64,
    /// Requests whose outcome is `ok`.
    pub ok: u64,
    /// By outcome.
    pub failed: BTreeMap<String, u64>,
    /// Requests sent per second since the last progress.
    pub rate: f64,
    /// Requests scheduled per second since the last progress.
    pub target_rate: Option<f64>,
    /// None, as in [`Quantiles`]: of too few rows.
    pub p50_ms: Option<f64>,
    /// The 99th percentile of the latency in milliseconds; none: of too few rows.
    pub p99_ms: Option<f64>,
    /// The 99th percentile of how late requests were sent, in microseconds; none: of too few rows.
    pub lag_p99_us: Option<f64>,
}

/// How the run went.
#[derive(Debug, Clone, Serialize)]
pub struct Done {
    /// Rows in the table.
    pub rows: u64,
    /// Requests in the schedule, and those of later stages that were sent; in a closed loop, those
    /// sent.
    pub scheduled: u64,
    /// Requests sent.
    pub sent: u64,
    /// Scheduled, but not sent because the run was stopped. They have no rows.
    pub unsent: u64,
    /// Requests whose outcome is `ok`.
    pub ok: u64,
    /// By outcome.
    pub failed: BTreeMap<String, u64>,
    /// The signal that stopped the run.
    pub interrupted: Option<&'static str>,
    /// The rule that stopped the run.
    pub stopped: Option<Stopped>,
    /// Seconds from the checked plan to the closed table, with the round-trip probes before the run.
    pub elapsed_s: f64,
    /// Requests per second from the first to the last send time, as scheduled.
    pub offered_rate: Option<f64>,
    /// The same, as sent.
    pub achieved_rate: Option<f64>,
    /// From the scheduled time to the end of the answer, of those that were answered and had one.
    pub latency_ms: Option<Quantiles>,
    /// How late requests were sent, in microseconds; none if there are no rows.
    pub lag_us: Option<Quantiles>,
    /// Round-trip times, one entry per endpoint and time of probing.
    pub rtt: Vec<Rtt>,
    /// CPU time of the process, all threads.
    pub cpu_s: f64,
    /// The table's file, under its final name.
    pub out: PathBuf,
    /// The spans' file; none: spans are not kept.
    pub spans_out: Option<PathBuf>,
}
