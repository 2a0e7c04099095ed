//! What is wrong with a definition, and how a state fails.

/// Why a definition is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum DefinitionError {
    #[error("the definition is no JSON: {0}")]
    Json(String),
    #[error("{at}: {key} is missing")]
    Missing { at: String, key: String },
    #[error("{at}: {key} is not supported")]
    Unsupported { at: String, key: String },
    #[error("{at}: {key} {problem}")]
    Invalid { at: String, key: String, problem: String },
    #[error("{at}: there is no state {target}, which {key} names")]
    NoState { at: String, key: String, target: String },
    #[error("{at}: no state leads to it")]
    Unreachable { at: String },
    #[error("{at}: another state has that name, too; names are unique in the whole definition")]
    Repeated { at: String },
}

/// The names of errors that the interpreter itself raises.
pub mod names {
    /// Stands for every error that can be caught.
    pub const ALL: &str = "States.ALL";
    /// A state, or the whole execution, took longer than it may.
    pub const TIMEOUT: &str = "States.Timeout";
    /// Stands for every error that can be caught but a timeout; a task's without a name has it.
    pub const TASK_FAILED: &str = "States.TaskFailed";
    /// A result does not fit where its path puts it.
    pub const RESULT_PATH: &str = "States.ResultPathMatchFailure";
    /// A path in parameters or a selector finds nothing.
    pub const PARAMETER_PATH: &str = "States.ParameterPathFailure";
    /// No rule of a choice holds, and there is no default.
    pub const NO_CHOICE: &str = "States.NoChoiceMatched";
    /// A path finds nothing, or a value has the wrong type. It cannot be caught by `States.ALL`.
    pub const RUNTIME: &str = "States.Runtime";
    /// Data is larger than the limit. It cannot be caught by `States.ALL`.
    pub const DATA_LIMIT: &str = "States.DataLimitExceeded";
    /// Stands for every error that a branch of a parallel or map state has failed with; one without a
    /// name has it.
    pub const BRANCH_FAILED: &str = "States.BranchFailed";
}

/// How a state, or an execution, failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The error's name, such as `States.Timeout` or that of a function's exception.
    pub error: String,
    /// What happened, for people.
    pub cause: String,
}

impl Failure {
    pub(crate) fn new(error: &str, cause: impl Into<String>) -> Self {
        Self { error: error.to_owned(), cause: cause.into() }
    }

    pub(crate) fn runtime(cause: impl Into<String>) -> Self {
        Self::new(names::RUNTIME, cause)
    }
}
