//! Events in the form of Lambda's schema.
//! Source: <https://docs.aws.amazon.com/lambda/latest/dg/telemetry-schema-reference.html>

use bytes::Bytes;
use serde_json::{Value, json};

use super::Kind;
use crate::clock::{Moment, rfc_3339, unix_ns};

const NS_PER_MS: i64 = 1_000_000;

/// An event at a Unix time in ns.
pub(super) fn at(unix_ns: i64, name: &str, record: &Value) -> Bytes {
    let time = rfc_3339(unix_ns / NS_PER_MS);
    json!({"time": time, "type": name, "record": record}).to_string().into()
}

/// A line that was printed; what is no UTF-8 is replaced.
pub(super) fn line(kind: Kind, line: &[u8]) -> Bytes {
    at(unix_ns(), kind.name(), &Value::String(String::from_utf8_lossy(line).into_owned()))
}

pub(super) fn logs_dropped(reason: &str, events: u64, bytes: u64) -> Bytes {
    let record = json!({"reason": reason, "droppedRecords": events, "droppedBytes": bytes});
    at(unix_ns(), "platform.logsDropped", &record)
}

/// A duration in ms, to the microsecond.
pub(super) fn milliseconds(ns: i64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

/// A part of what an event is about.
pub(super) fn span(name: &str, start: Moment, end: Moment) -> Value {
    let duration = milliseconds(end.since(start).max(0));
    let start = rfc_3339(start.unix() / NS_PER_MS);
    json!({"name": name, "start": start, "durationMs": duration})
}

/// A trace id as events carry it.
pub(super) fn tracing(trace: &str) -> Value {
    let span = trace.split("Parent=").nth(1).and_then(|rest| rest.split(';').next());
    json!({"type": "X-Amzn-Trace-Id", "value": trace, "spanId": span})
}
