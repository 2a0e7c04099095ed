//! The outcome of an answer.

use super::headers::Headers;
use super::report::{Answer, Report};
use crate::answer::TOO_LONG;
use crate::picker::MAX_REPORT_BYTES;

/// Of an answer in time whose function says that it is wrong.
const WRONG_OUTPUT: &str = "the function's own check says that its output is wrong";
const TOO_MANY_REQUESTS: u16 = 429;
/// How AWS Lambda words a timeout, which it reports as an error of the function.
const LAMBDA_TIMEOUT: &str = "Task timed out after";
/// How OpenWhisk does.
const OPENWHISK_TIMEOUT: &str = "The action exceeded its time limits of";

/// The outcome, and what went wrong.
pub(super) fn judge(
    status: u16,
    headers: &Headers,
    answer: &Answer,
    body: &[u8],
) -> (&'static str, Option<String>) {
    let message = answer.error_message.as_deref().unwrap_or_default();
    let error = answer.error.as_deref().unwrap_or_default();
    let by_answer = match (status, &headers.function_error) {
        (_, Some(_)) if message.contains(LAMBDA_TIMEOUT) => "timeout",
        (_, Some(_)) => "function_error",
        (200..=299, None) => "ok",
        (TOO_MANY_REQUESTS, _) => "throttled",
        (502, None) if error.starts_with(OPENWHISK_TIMEOUT) => "timeout",
        (500..=599, _) => "function_error",
        _ => "transport_error",
    };
    let outcome = headers.outcome.unwrap_or(by_answer);
    if outcome == "ok" {
        // An answer in time is worth nothing if it is wrong.
        return match &answer.uncia {
            // Whether the answer is right would be in there.
            None if body == TOO_LONG => (
                "function_error",
                Some(format!(
                    "the key uncia is longer than {MAX_REPORT_BYTES} bytes, and is not read"
                )),
            ),
            Some(Report { valid: Some(false), .. }) => (
                "function_error",
                Some(answer.failure().unwrap_or_else(|| WRONG_OUTPUT.to_owned())),
            ),
            _ => (outcome, None),
        };
    }
    let said = match &headers.function_error {
        Some(kind) => kind.clone(),
        None => format!("HTTP {status}"),
    };
    let explanation = answer.explanation().or_else(|| {
        let text = String::from_utf8_lossy(body);
        let is_text = !text.trim().is_empty() && !text.starts_with('{');
        is_text.then(|| text.split_whitespace().collect::<Vec<_>>().join(" "))
    });
    let note = match status {
        300..=399 if explanation.is_none() => Some("redirects are not followed".to_owned()),
        _ => explanation,
    };
    (outcome, Some(note.map_or(said.clone(), |note| format!("{said}: {note}"))))
}
