//! Invocations as spans, in OTLP's JSON encoding, with OpenTelemetry's names for functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use uncia_record::Invocation;

use super::Finished;
use crate::ids::random;
use crate::meterlog::Recorded;

/// Kinds of spans and codes of status, of the protocol.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const FAILED: u8 = 2;

/// The request of an export: the spans of each function under its resource.
pub(super) fn request(finished: &[Finished], resource: &[(String, String)]) -> Value {
    let mut by_function: BTreeMap<(Arc<str>, Option<i64>), Vec<Value>> = BTreeMap::new();
    for one in finished {
        let row = &one.recorded.row;
        let key = (row.function.clone(), row.allocated_memory);
        by_function.entry(key).or_default().extend(spans(one));
    }
    let of_each = by_function.into_iter().map(|((function, memory), spans)| {
        let mut attributes: Vec<Value> =
            resource.iter().map(|(key, value)| text(key, value)).collect();
        attributes.push(text("faas.name", &function));
        attributes.extend(memory.map(|bytes| number("faas.max_memory", bytes)));
        json!({
            "resource": {"attributes": attributes},
            "scopeSpans": [{
                "scope": {"name": "uncia", "version": env!("CARGO_PKG_VERSION")},
                "spans": spans,
            }],
        })
    });
    json!({"resourceSpans": of_each.collect::<Vec<_>>()})
}

/// The span of an invocation, and one for each of its phases.
fn spans(finished: &Finished) -> Vec<Value> {
    let Finished { recorded, request, ended } = finished;
    let row = &recorded.row;
    let (trace, id) = (hex::encode(request.context.trace), hex::encode(random::<8>()));
    // What never ran has no stamps of its own.
    let waited = row.queued.unwrap_or(0) + row.initialization.unwrap_or(0);
    let begin = row.started.map_or(request.arrived.unix(), |started| started - waited);
    let end = row.ended.unwrap_or(begin + ended.since(request.arrived).max(0));
    let mut span = json!({
        "traceId": trace,
        "spanId": id,
        "name": &*row.function,
        "kind": SERVER,
        "startTimeUnixNano": begin.to_string(),
        "endTimeUnixNano": end.to_string(),
        "attributes": attributes(row, request.trigger),
        "status": {},
    });
    if let Some(parent) = request.context.parent {
        span["parentSpanId"] = json!(hex::encode(parent));
    }
    if let Some(state) = &request.context.state {
        span["traceState"] = json!(state);
    }
    if &*row.outcome != "ok" {
        let message = row.error.as_deref().unwrap_or(&row.outcome);
        span["status"] = json!({"code": FAILED, "message": message});
    }
    let mut spans = vec![span];
    let mut start = begin;
    let phases = [
        ("queue", row.queued),
        ("initialization", row.initialization),
        ("execution", row.execution),
    ];
    for (name, length) in phases.into_iter().filter_map(|(name, ns)| Some((name, ns?))) {
        let end = start + length;
        let attributes = if name == "initialization" { starts(recorded) } else { Vec::new() };
        spans.push(json!({
            "traceId": trace,
            "spanId": hex::encode(random::<8>()),
            "parentSpanId": id,
            "name": name,
            "kind": INTERNAL,
            "startTimeUnixNano": start.to_string(),
            "endTimeUnixNano": end.to_string(),
            "attributes": attributes,
            "status": {},
        }));
        start = end;
    }
    spans
}

/// What is said of an invocation; nothing of what was not measured.
fn attributes(row: &Invocation, trigger: &str) -> Vec<Value> {
    let mut attributes = vec![
        text("faas.trigger", trigger),
        flag("faas.coldstart", row.initialization.is_some()),
        text("uncia.outcome", &row.outcome),
        number("uncia.attempt", row.attempt),
    ];
    let texts = [
        ("faas.invocation_id", row.request_id.as_deref()),
        ("faas.instance", row.instance.as_deref()),
        ("uncia.start", row.start.as_deref()),
        ("error.type", (&*row.outcome != "ok").then_some(&*row.outcome)),
    ];
    attributes.extend(texts.into_iter().filter_map(|(key, value)| Some(text(key, value?))));
    let numbers = [
        ("uncia.cpu_user_ns", row.cpu_user),
        ("uncia.cpu_system_ns", row.cpu_system),
        ("uncia.throttled_ns", row.throttled_time),
        ("uncia.memory_avg_bytes", row.memory_avg),
        ("uncia.memory_peak_bytes", row.memory_peak),
        ("uncia.billed_ns", row.billed),
        ("uncia.request_bytes", row.request_bytes),
        ("uncia.response_bytes", row.response_bytes),
    ];
    attributes.extend(numbers.into_iter().filter_map(|(key, value)| Some(number(key, value?))));
    attributes
}

/// The parts of an instance's start, each with its length: they may overlap.
fn starts(recorded: &Recorded) -> Vec<Value> {
    let length = |name: &str, ns| number(&format!("uncia.start.{name}_ns"), ns);
    recorded.spans.iter().map(|span| length(&span.name, span.end - span.start)).collect()
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Numbers of 64 bits are texts in this encoding.
fn number(key: &str, value: i64) -> Value {
    json!({"key": key, "value": {"intValue": value.to_string()}})
}

fn flag(key: &str, value: bool) -> Value {
    json!({"key": key, "value": {"boolValue": value}})
}
