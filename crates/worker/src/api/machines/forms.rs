//! The bodies of requests, and what is checked of them.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Refusal;

const MAX_DEFINITION_BYTES: usize = 1_048_576;
const MAX_NAME: usize = 80;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct Create {
    pub name: String,
    pub definition: String,
    pub roleArn: String,
    pub r#type: Option<String>,
    /// Nobody reads them: this platform's logs are its own.
    #[serde(rename = "loggingConfiguration")]
    _logging: Option<Value>,
    #[serde(rename = "tracingConfiguration")]
    _tracing: Option<Value>,
    #[serde(rename = "tags")]
    _tags: Option<Value>,
    pub publish: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct Update {
    pub stateMachineArn: String,
    pub definition: Option<String>,
    pub roleArn: Option<String>,
    #[serde(rename = "loggingConfiguration")]
    _logging: Option<Value>,
    #[serde(rename = "tracingConfiguration")]
    _tracing: Option<Value>,
    pub publish: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct StartRequest {
    pub stateMachineArn: String,
    pub name: Option<String>,
    pub input: Option<String>,
    #[serde(rename = "traceHeader")]
    _trace: Option<String>,
    #[serde(rename = "includedData")]
    _included: Option<String>,
}

/// What operations on one machine or execution, and lists, may say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case)]
pub(super) struct ByArn {
    pub stateMachineArn: Option<String>,
    pub executionArn: Option<String>,
    pub error: Option<String>,
    pub cause: Option<String>,
    pub maxResults: Option<usize>,
    pub nextToken: Option<String>,
    pub statusFilter: Option<String>,
    pub reverseOrder: Option<bool>,
    #[serde(rename = "includeExecutionData")]
    _include: Option<bool>,
    #[serde(rename = "includedData")]
    _included: Option<String>,
}

pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body)
        .map_err(|error| invalid(format!("The request is not valid: {error}")))
}

pub(super) fn invalid(message: impl Into<String>) -> Refusal {
    Refusal("ValidationException", message.into())
}

/// Checks the name of a machine or an execution.
pub(super) fn check_name(name: &str) -> Result<(), Refusal> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+!@".contains(&byte);
    if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_allowed) {
        return Ok(());
    }
    let message =
        format!("Invalid Name: '{name}': write 1 to {MAX_NAME} letters, digits and -_.+!@");
    Err(Refusal("InvalidName", message))
}

pub(super) fn check_definition(definition: &str) -> Result<(), Refusal> {
    if definition.len() <= MAX_DEFINITION_BYTES {
        return Ok(());
    }
    Err(invalid(format!("The definition has more than {MAX_DEFINITION_BYTES} bytes")))
}

pub(super) fn check_published(publish: Option<bool>) -> Result<(), Refusal> {
    match publish {
        Some(true) => Err(invalid("State machines have no versions on this platform")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        assert!(check_name("a-b_c.9+!@").is_ok());
        for name in ["", "a b", "a/b", "é", &"x".repeat(81)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
