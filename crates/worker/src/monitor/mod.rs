//! What has happened since the platform started: totals of every function, the last seconds, and the
//! last invocations.
//!
//! Fed with each row that goes to the log ([`MonitoredLog`]), and read by the metrics and the page.
//! All of it is bounded, and nothing runs between two rows.

mod functions;
mod histogram;
mod log;
mod recent;
mod seconds;

use std::sync::{Arc, Mutex, PoisonError};

use uncia_clock::{Moment, monotonic_ns};
use uncia_record::Invocation;

pub(crate) use functions::{Functions, Totals};
pub(crate) use histogram::Histogram;
pub(crate) use log::MonitoredLog;
pub(crate) use recent::Recent;
pub(crate) use seconds::{Point, Seconds};

use crate::meterlog::Recorded;

/// What has happened since the platform started.
pub(crate) struct Monitor {
    started: Moment,
    seen: Mutex<Seen>,
}

/// What the rows so far come to.
#[derive(Default)]
pub(crate) struct Seen {
    /// Totals since the start, by function.
    pub functions: Functions,
    /// The last minutes, by second.
    pub seconds: Seconds,
    /// The last rows.
    pub recent: Recent,
    /// Invocations whose rows the log did not take.
    pub unrecorded: u64,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self { started: Moment::now(), seen: Mutex::default() }
    }

    /// When the platform started.
    pub(crate) fn started(&self) -> Moment {
        self.started
    }

    /// Now, by the real-time clock as it was set at the start, so that no second comes twice.
    pub(crate) fn now(&self) -> Moment {
        self.started.at(monotonic_ns())
    }

    /// Adds an invocation whose row is in the log.
    pub(crate) fn record(&self, recorded: &Arc<Recorded>) {
        let now = self.now();
        self.read(|seen| {
            seen.functions.record(&recorded.row);
            seen.seconds.record(now, &recorded.row);
            seen.recent.record(recorded.clone());
        });
    }

    /// Counts an invocation whose row the log did not take.
    pub(crate) fn miss(&self) {
        self.read(|seen| seen.unrecorded += 1);
    }

    /// Reads what has happened; rows wait meanwhile.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&mut Seen) -> T) -> T {
        // Its parts are whole after every statement, so a panic elsewhere does not spoil them.
        read(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether an invocation ended otherwise than its caller hoped for.
pub(crate) fn is_failure(row: &Invocation) -> bool {
    &*row.outcome != "ok"
}

/// From a request's arrival to its end, in ns; None if it never ran.
pub(crate) fn latency(row: &Invocation) -> Option<i64> {
    let execution = row.execution?;
    Some(row.queued.unwrap_or(0) + row.initialization.unwrap_or(0) + execution)
}

/// CPU time in ns; None if neither part of it was measured.
pub(crate) fn cpu_time(row: &Invocation) -> Option<i64> {
    match (row.cpu_user, row.cpu_system) {
        (None, None) => None,
        (user, system) => Some(user.unwrap_or(0) + system.unwrap_or(0)),
    }
}
