//! The history of an execution, in the words of Step Functions.

use std::sync::Arc;

use serde_json::Value;

use crate::Nanos;
use crate::error::Failure;

/// An event of the history.
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// From 1.
    pub id: u64,
    /// The event of the same branch before it; 0 for the first.
    pub previous: u64,
    /// When.
    pub time: Nanos,
    /// Such as `TaskStateEntered`.
    pub kind: &'static str,
    /// The state's name.
    pub state: Option<String>,
    /// The function's name or ARN.
    pub function: Option<String>,
    /// The input, output or answer.
    pub data: Option<Arc<Value>>,
    /// Why something failed.
    pub failure: Option<Failure>,
    /// The number of a map's item, from 0.
    pub index: Option<usize>,
}

impl History {
    /// One of which nothing is known but its kind.
    #[must_use]
    pub fn new(kind: &'static str) -> Self {
        Self {
            id: 0,
            previous: 0,
            time: 0,
            kind,
            state: None,
            function: None,
            data: None,
            failure: None,
            index: None,
        }
    }

    pub(super) fn state(self, name: &str) -> Self {
        Self { state: Some(name.to_owned()), ..self }
    }

    pub(super) fn function(self, name: &str) -> Self {
        Self { function: Some(name.to_owned()), ..self }
    }

    pub(super) fn data(self, value: &Arc<Value>) -> Self {
        Self { data: Some(value.clone()), ..self }
    }

    pub(super) fn failure(self, failure: &Failure) -> Self {
        Self { failure: Some(failure.clone()), ..self }
    }

    pub(super) fn index(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }
}

/// The kinds of events of a state of this type: when it is entered, and when it is left.
pub(super) fn kinds(state: &str) -> (&'static str, &'static str) {
    match state {
        "Task" => ("TaskStateEntered", "TaskStateExited"),
        "Pass" => ("PassStateEntered", "PassStateExited"),
        "Choice" => ("ChoiceStateEntered", "ChoiceStateExited"),
        "Wait" => ("WaitStateEntered", "WaitStateExited"),
        "Succeed" => ("SucceedStateEntered", "SucceedStateExited"),
        "Parallel" => ("ParallelStateEntered", "ParallelStateExited"),
        "Map" => ("MapStateEntered", "MapStateExited"),
        _ => ("FailStateEntered", "FailStateExited"),
    }
}
