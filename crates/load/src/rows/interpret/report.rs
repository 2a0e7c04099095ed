//! The JSON of an answer, as far as it is about the invocation.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::MAX_ERROR_CHARACTERS;
use crate::picker::Picker;

/// Of a trace, so many lines are kept at most.
const MAX_TRACE_LINES: usize = 40;

/// The part of a function's JSON answer that is about the invocation itself.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Report {
    pub fresh: Option<bool>,
    pub instance: Option<String>,
    pub handler_start_ns: Option<i64>,
    pub handler_end_ns: Option<i64>,
    /// Whether the function's own check of its output passed.
    pub valid: Option<bool>,
    /// Further intervals that the function measured, in Unix time: a list of [name, start, end]. Of
    /// another form, it is the function's own affair.
    pub spans: Option<Value>,
    /// What it has invoked as a stage of a chain, and what that has: see `rows::hops`.
    pub hops: Option<Value>,
}

/// The keys of an answer that matter; a function's own are passed over without being kept.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Answer {
    pub uncia: Option<Report>,
    #[serde(rename = "errorType")]
    pub error_type: Option<String>,
    #[serde(rename = "errorMessage")]
    pub error_message: Option<String>,
    #[serde(alias = "Message")]
    pub message: Option<String>,
    /// OpenWhisk's word for it, of functions and of itself.
    pub error: Option<String>,
}

/// The members of an object. A mistake in a value that does not matter, such as Python's `NaN`, hides none
/// of the others, as in a longer answer.
fn members(body: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let body = body.trim_ascii();
        if !(body.starts_with(b"{") && body.ends_with(b"}")) {
            return Map::new();
        }
        let mut picker = Picker::default();
        picker.take(body);
        let picked = picker.picked().unwrap_or_default();
        serde_json::from_slice(picked).unwrap_or_default()
    })
}

impl Report {
    /// The members of the right form. Functions may use a key for something else; that is no error, and
    /// takes nothing away from the other keys.
    fn of(value: &Value) -> Option<Self> {
        let members = value.as_object()?;
        let get = |key: &str| members.get(key);
        Some(Self {
            fresh: get("fresh").and_then(Value::as_bool),
            instance: get("instance").and_then(Value::as_str).map(str::to_owned),
            handler_start_ns: get("handler_start_ns").and_then(Value::as_i64),
            handler_end_ns: get("handler_end_ns").and_then(Value::as_i64),
            valid: get("valid").and_then(Value::as_bool),
            spans: get("spans").cloned(),
            hops: get("hops").cloned(),
        })
    }
}

impl Answer {
    pub(super) fn read(body: &[u8]) -> Self {
        // Almost every answer has the right form, and is read several times as fast that way.
        serde_json::from_slice(body).unwrap_or_else(|_| Self::read_leniently(body))
    }

    fn read_leniently(body: &[u8]) -> Self {
        let members = members(body);
        let text = |key: &str| members.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            uncia: members.get("uncia").and_then(Report::of),
            error_type: text("errorType"),
            error_message: text("errorMessage"),
            message: text("message").or_else(|| text("Message")),
            error: text("error"),
        }
    }

    pub(super) fn explanation(&self) -> Option<String> {
        self.failure().or_else(|| self.message.clone()).or_else(|| self.error.clone())
    }

    /// What a function says of its own failure.
    pub(super) fn failure(&self) -> Option<String> {
        match (&self.error_type, &self.error_message) {
            (Some(kind), Some(message)) => Some(format!("{kind}: {message}")),
            (one, other) => one.clone().or_else(|| other.clone()),
        }
    }
}

/// Where a function failed: lines of a trace, as Lambda's runtimes name them.
pub(super) fn trace(body: &[u8]) -> Vec<String> {
    let members: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    let lines = members.get("stackTrace").or_else(|| members.get("trace"));
    let lines: Option<Vec<&str>> =
        lines.and_then(Value::as_array).and_then(|it| it.iter().map(Value::as_str).collect());
    let lines = lines.unwrap_or_default().into_iter().flat_map(str::lines);
    let lines = lines.map(|line| line.chars().take(MAX_ERROR_CHARACTERS).collect());
    lines.take(MAX_TRACE_LINES).collect()
}
