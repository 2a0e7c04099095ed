//! Data between states: its paths, and its times.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Nanos;
use crate::error::{Failure, names};
use crate::path::Path;

/// What a path finds; an empty object without a path, which is null in the definition.
pub(super) fn select(
    path: Option<&Path>,
    what: &str,
    value: &Value,
    context: &Value,
) -> Result<Value, Failure> {
    let Some(path) = path else { return Ok(json!({})) };
    path.find(value, context)
        .ok_or_else(|| Failure::runtime(format!("{what} {} finds nothing", path.text())))
}

/// A state's input with a result in it; without a path the result is discarded.
pub(super) fn combine(path: Option<&Path>, raw: &Value, result: Value) -> Result<Value, Failure> {
    let Some(path) = path else { return Ok(raw.clone()) };
    if path.text() == "$" {
        return Ok(result);
    }
    let mut output = raw.clone();
    path.put(&mut output, result).map_err(|problem| Failure::new(names::RESULT_PATH, problem))?;
    Ok(output)
}

/// A time as it stands in data; the beginning of Unix time for one that no calendar has.
pub(super) fn text(time: Nanos) -> String {
    Timestamp::from_nanosecond(time).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_rfc_3339() {
        assert_eq!(text(1_767_225_600_250_000_000), "2026-01-01T00:00:00.25Z");
        assert_eq!(text(Nanos::MAX), "1970-01-01T00:00:00Z");
    }
}
