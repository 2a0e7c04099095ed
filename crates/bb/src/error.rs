use std::ops::RangeInclusive;

/// What is wrong with the settings of a trace.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// A number is out of its range.
    #[error("{key} is {value}, and must be {range}")]
    Range {
        /// Which setting.
        key: &'static str,
        /// Its value.
        value: f64,
        /// What is allowed.
        range: &'static str,
    },
    /// Two functions have the same name.
    #[error("the function {name:?} is there twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// A function does not have a count for each minute.
    #[error("the function {name:?} has {counts} counts for {minutes} minutes")]
    Counts {
        /// The function.
        name: String,
        /// Counts that it has.
        counts: usize,
        /// Minutes of the trace.
        minutes: u32,
    },
    /// A function's durations or memory are no distribution.
    #[error("the {of} of the function {name:?}: {problem}")]
    Quantiles {
        /// The function.
        name: String,
        /// Durations or memory.
        of: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// A profile of the suite cannot be.
    #[error("the profile {name:?}: {problem}")]
    Profile {
        /// The function of the suite.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// No function of the suite can be of the quality of service that is asked for.
    #[error("no profile can be {qos}, which a batch share of {share} needs")]
    NoSuchQos {
        /// The quality of service.
        qos: &'static str,
        /// The share of batch that was asked for.
        share: f64,
    },
    /// There is nothing in the trace.
    #[error("no function is invoked in these minutes")]
    NothingInvoked,
}

pub(crate) fn in_range(
    key: &'static str,
    value: f64,
    range: RangeInclusive<f64>,
    words: &'static str,
) -> Result<(), TraceError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(TraceError::Range { key, value, range: words })
}
