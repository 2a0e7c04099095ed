//! The JSON of an answer, as far as it is about the invocation.

use serde::Deserialize;

use super::MAX_ERROR_CHARACTERS;

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
    pub spans: Option<serde_json::Value>,
    /// What it has invoked as a stage of a chain, and what that has: see `rows::hops`.
    pub hops: Option<serde_json::Value>,
}

/// The keys of an answer that matter; a function's own are passed over without being kept.
#[derive(Debug, Default, Deserialize)]
#[serde(bound = "R: Deserialize<'de>, S: Deserialize<'de>")]
pub(super) struct Keys<R, S> {
    pub uncia: Option<R>,
    #[serde(rename = "errorType")]
    pub error_type: Option<S>,
    #[serde(rename = "errorMessage")]
    pub error_message: Option<S>,
    #[serde(alias = "Message")]
    pub message: Option<S>,
    /// OpenWhisk's word for it, of functions and of itself.
    pub error: Option<S>,
}

pub(super) type Answer = Keys<Report, String>;

/// A value of the right form, or another. Functions may use the keys for something else; that is no
/// error.
pub(super) struct Lenient<T>(Option<T>);

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(serde_json::from_value(value).ok()))
    }
}

impl Answer {
    pub(super) fn read(body: &[u8]) -> Self {
        // Almost every answer has the right form, and is read several times as fast that way.
        serde_json::from_slice(body).unwrap_or_else(|_| Self::read_leniently(body))
    }

    fn read_leniently(body: &[u8]) -> Self {
        type Found = Keys<Lenient<Report>, Lenient<String>>;
        serde_json::from_slice(body).map_or_else(
            |_| Self::default(),
            |found: Found| Self {
                uncia: found.uncia.and_then(|value| value.0),
                error_type: found.error_type.and_then(|value| value.0),
                error_message: found.error_message.and_then(|value| value.0),
                message: found.message.and_then(|value| value.0),
                error: found.error.and_then(|value| value.0),
            },
        )
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
#[derive(Default, Deserialize)]
pub(super) struct Trace {
    #[serde(rename = "stackTrace", alias = "trace")]
    lines: Option<Lenient<Vec<String>>>,
}

impl Trace {
    pub(super) fn read(body: &[u8]) -> Vec<String> {
        let trace: Self = serde_json::from_slice(body).unwrap_or_default();
        let lines = trace.lines.and_then(|lines| lines.0).unwrap_or_default();
        let lines = lines.iter().flat_map(|line| line.lines());
        let lines = lines.map(|line| line.chars().take(MAX_ERROR_CHARACTERS).collect());
        lines.take(MAX_TRACE_LINES).collect()
    }
}
