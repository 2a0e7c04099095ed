//! Histories in the form of Step Functions' API.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use uncia_flow::{Failure, History};

use super::ExecutionRow;
use super::execution::text;
use crate::clock::epoch_seconds;

/// Data and errors that the history of one execution holds, in bytes of JSON; of what comes later they
/// are left out.
const MAX_DATA_BYTES: usize = 1024 * 1024;

/// The history of an execution that runs.
pub(super) struct Log {
    is_kept: bool,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    events: Vec<Value>,
    data_bytes: usize,
}

impl Log {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { is_kept, kept: Mutex::default() }
    }

    pub(super) fn add(&self, event: History) {
        if !self.is_kept {
            return;
        }
        let mut kept = self.lock();
        let data = event.data.as_deref().map(text);
        let cause = event.failure.as_ref().map_or(0, |it| it.error.len() + it.cause.len());
        let bytes = data.as_ref().map_or(0, String::len) + cause;
        let fits = kept.data_bytes + bytes <= MAX_DATA_BYTES;
        kept.data_bytes += if fits { bytes } else { 0 };
        let event = History { failure: event.failure.filter(|_| fits), ..event };
        let value = describe(event, data.filter(|_| fits));
        kept.events.push(value);
    }

    /// The events so far.
    pub(super) fn events(&self) -> Vec<Value> {
        self.lock().events.clone()
    }

    pub(super) fn to_json(&self) -> String {
        Value::Array(self.events()).to_string()
    }

    /// The list is whole after every statement, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The history of an execution that failed with its platform, at `time`: what it did in between is lost.
pub(super) fn cut_off(row: &ExecutionRow, failure: Failure, time: i64) -> String {
    let log = Log::new(true);
    let event = |id: u64, kind, time: i64| History {
        id,
        previous: id - 1,
        time: time.into(),
        ..History::new(kind)
    };
    let input = serde_json::from_str(&row.input).ok().map(Arc::new);
    log.add(History { data: input, ..event(1, "ExecutionStarted", row.started) });
    log.add(History { failure: Some(failure), ..event(2, "ExecutionFailed", time) });
    log.to_json()
}

/// An event as `GetExecutionHistory` gives it.
fn describe(event: History, data: Option<String>) -> Value {
    let (key, data_key) = match event.kind {
        "ExecutionStarted" => ("executionStartedEventDetails", "input"),
        "LambdaFunctionScheduled" => ("lambdaFunctionScheduledEventDetails", "input"),
        kind if kind.ends_with("StateEntered") => ("stateEnteredEventDetails", "input"),
        kind if kind.ends_with("StateExited") => ("stateExitedEventDetails", "output"),
        "ExecutionSucceeded" => ("executionSucceededEventDetails", "output"),
        "ExecutionFailed" => ("executionFailedEventDetails", "output"),
        "ExecutionTimedOut" => ("executionTimedOutEventDetails", "output"),
        "ExecutionAborted" => ("executionAbortedEventDetails", "output"),
        "LambdaFunctionSucceeded" => ("lambdaFunctionSucceededEventDetails", "output"),
        "LambdaFunctionFailed" => ("lambdaFunctionFailedEventDetails", "output"),
        "LambdaFunctionTimedOut" => ("lambdaFunctionTimedOutEventDetails", "output"),
        "MapStateStarted" => ("mapStateStartedEventDetails", "input"),
        "MapIterationStarted" => ("mapIterationStartedEventDetails", "input"),
        "MapIterationSucceeded" => ("mapIterationSucceededEventDetails", "output"),
        "MapIterationFailed" => ("mapIterationFailedEventDetails", "output"),
        _ => ("", ""),
    };
    let mut details = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            details.insert(key.to_owned(), value);
        }
    };
    put(data_key, data.map(Value::String));
    put("name", event.state.map(Value::String));
    put("resource", event.function.map(Value::String));
    let number = if event.kind == "MapStateStarted" { "length" } else { "index" };
    put(number, event.index.map(|index| json!(index)));
    if let Some(failure) = event.failure {
        put("error", given(failure.error).map(Value::String));
        put("cause", given(failure.cause).map(Value::String));
    }
    let mut value = json!({
        "id": event.id,
        "previousEventId": event.previous,
        "timestamp": epoch_seconds(event.time),
        "type": event.kind,
    });
    if !key.is_empty() {
        value[key] = Value::Object(details);
    }
    value
}

/// An error's name or its cause: the API leaves out what nobody gave.
pub(super) fn given(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &'static str, data: Option<Value>) -> History {
        History {
            id: 2,
            previous: 1,
            time: 1_500_000_000,
            state: Some("S".to_owned()),
            data: data.map(Arc::new),
            ..History::new(kind)
        }
    }

    #[test]
    fn events_have_the_form_of_the_api() {
        let log = Log::new(true);
        log.add(event("TaskStateEntered", Some(json!({"a": 1}))));
        let expected = json!({
            "id": 2,
            "previousEventId": 1,
            "timestamp": 1.5,
            "type": "TaskStateEntered",
            "stateEnteredEventDetails": {"name": "S", "input": "{\"a\":1}"},
        });
        assert_eq!(log.events(), [expected]);
    }

    #[test]
    fn an_error_without_a_name_or_a_cause_has_none() {
        let details = |error: &str, cause: &str| {
            let failure = Failure { error: error.to_owned(), cause: cause.to_owned() };
            let event = History { failure: Some(failure), ..event("ExecutionFailed", None) };
            describe(event, None)["executionFailedEventDetails"].clone()
        };
        assert_eq!(details("E", ""), json!({"name": "S", "error": "E"}));
        assert_eq!(details("", ""), json!({"name": "S"}));
    }

    #[test]
    fn data_beyond_the_bound_is_left_out_and_the_event_stays() {
        let log = Log::new(true);
        for _ in 0..5 {
            log.add(event("TaskStateExited", Some(json!("x".repeat(MAX_DATA_BYTES / 3)))));
        }
        let outputs: Vec<bool> = (log.events().iter())
            .map(|event| event["stateExitedEventDetails"]["output"].is_string())
            .collect();
        assert_eq!(outputs, [true, true, false, false, false]);
        let failure =
            uncia_flow::Failure { error: "E".to_owned(), cause: "x".repeat(MAX_DATA_BYTES) };
        log.add(History { failure: Some(failure), ..event("LambdaFunctionFailed", None) });
        assert_eq!(log.events()[5]["lambdaFunctionFailedEventDetails"]["cause"], Value::Null);
        let forgotten = Log::new(false);
        forgotten.add(event("TaskStateExited", None));
        assert!(forgotten.events().is_empty());
    }
}
