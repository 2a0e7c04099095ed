//! What a run tells while it goes on: one JSON object each.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

pub use crate::rows::{Quantiles, Stopped};

#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Something the person should know before the run starts.
    Warning {
        message: String,
    },
    /// How long the network takes to an endpoint and back.
    Rtt(Rtt),
    Start(Start),
    Progress(Progress),
    Done(Box<Done>),
}

/// Whether something is before the run or after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    #[default]
    Before,
    After,
}

/// Round-trip times to an endpoint, as TCP's connecting takes them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Rtt {
    pub when: When,
    pub endpoint: String,
    pub samples_ns: Vec<i64>,
    /// Why there are no more of them.
    pub error: Option<String>,
}

/// The run is about to start.
#[derive(Debug, Clone, Serialize)]
pub struct Start {
    /// Requests in the schedule; none when a closed loop decides that as it goes.
    pub scheduled: Option<u64>,
    pub epoch_unix_ns: i64,
    pub start_unix_ns: i64,
    /// From the start to the last send time.
    pub span_ns: i64,
}

/// How the run goes.
#[derive(Debug, Clone, Serialize)]
pub struct Progress {
    pub elapsed_s: f64,
    /// Requests in the whole schedule; none when a closed loop decides that as it goes.
    pub scheduled: Option<u64>,
    pub sent: u64,
    pub done: u64,
    pub in_flight: u64,
    pub ok: u64,
    /// By outcome.
    pub failed: BTreeMap<String, u64>,
    /// Requests sent per second since the last progress.
    pub rate: f64,
    /// Requests scheduled per second since the last progress.
    pub target_rate: Option<f64>,
    /// None, as in [`Quantiles`]: of too few rows.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub lag_p99_us: Option<f64>,
}

/// How the run went.
#[derive(Debug, Clone, Serialize)]
pub struct Done {
    pub rows: u64,
    pub scheduled: u64,
    pub sent: u64,
    /// Scheduled, but not sent because the run was stopped. They have no rows.
    pub unsent: u64,
    pub ok: u64,
    /// By outcome.
    pub failed: BTreeMap<String, u64>,
    /// The signal that stopped the run.
    pub interrupted: Option<&'static str>,
    /// The rule that stopped the run.
    pub stopped: Option<Stopped>,
    pub elapsed_s: f64,
    /// Requests per second from the first to the last send time, as scheduled.
    pub offered_rate: Option<f64>,
    /// The same, as sent.
    pub achieved_rate: Option<f64>,
    /// From the scheduled time to the end of the answer, of those that were answered.
    pub latency_ms: Option<Quantiles>,
    pub lag_us: Option<Quantiles>,
    pub rtt: Vec<Rtt>,
    /// CPU time of the process, all threads.
    pub cpu_s: f64,
    /// The table's file, under its final name.
    pub out: PathBuf,
    pub spans_out: Option<PathBuf>,
}
