//! Bills of the invocations so far, from the process that computes them: `uncia serve`.
//!
//! Money is computed in one place, which is not here: whoever computes it waits until somebody watches
//! ([`viewers`]), and brings what the page shows ([`put`]).

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::timeout;

use crate::api::{Answer, Api, ApiError, Client, bytes_answer, query_values};
use crate::json::UniqueKeys;

/// The largest bills that are taken.
const MAX_BYTES: usize = 1024 * 1024;
/// The longest wait for somebody who watches, in s.
const MAX_WAIT_S: u64 = 60;

/// Checks that it is the platform's owner who brings bills, or waits for somebody to bring them to:
/// whoever else can reach it could show what is not so, and have it computed for nothing.
pub(super) fn check_owner(head: &Parts) -> Result<(), ApiError> {
    match head.extensions.get::<Client>() {
        Some(Client::Owner) => Ok(()),
        _ => Err(ApiError::denied(
            "Bills are taken at a unix socket of the platform alone (--socket)",
        )),
    }
}

/// Answers how many watch; before that waits `wait` seconds for the first.
pub(super) async fn viewers(api: &Arc<Api>, head: &Parts) -> Result<Answer, ApiError> {
    let wait = query_values(head.uri.query().unwrap_or(""), "wait").into_iter().next();
    let wait = wait.map_or(Some(0), |text| text.parse().ok()).filter(|wait| *wait <= MAX_WAIT_S);
    let Some(wait) = wait else {
        return Err(ApiError::invalid(format!("wait must be 0 to {MAX_WAIT_S} whole seconds")));
    };
    api.page.note_biller();
    // Either way the answer is how many there are.
    let _ = timeout(Duration::from_secs(wait), api.page.watched()).await;
    let viewers = api.page.viewers();
    Ok(bytes_answer("application/json", json!({"viewers": viewers}).to_string()))
}

/// Shows new bills.
pub(super) fn put(api: &Arc<Api>, body: &Bytes) -> Result<Answer, ApiError> {
    if body.len() > MAX_BYTES {
        return Err(ApiError::too_large(body.len(), MAX_BYTES));
    }
    api.page.note_biller();
    api.page.show_bills(&one_line(body)?);
    let mut answer = Answer::default();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}

/// An object of JSON, in one line.
fn one_line(body: &[u8]) -> Result<String, ApiError> {
    let refused =
        |error: &dyn Display| ApiError::content(format!("Bills are an object of JSON: {error}"));
    let text = str::from_utf8(body).map_err(|error| refused(&error))?;
    serde_json::from_str::<UniqueKeys<IgnoredAny>>(text).map_err(|error| refused(&error))?;
    // Within JSON, ends of lines are but space.
    Ok(text.replace(['\r', '\n'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bills_cannot_end_their_event() {
        let line = one_line(b"{\"a\":\r\n\"b\\n\"\n}\n\n").unwrap();
        assert_eq!(line, "{\"a\":  \"b\\n\" }  ");
        for odd in ["", "[]", "{", "3", "{\"a\":\"\n\"}"] {
            assert!(one_line(odd.as_bytes()).is_err(), "{odd:?}");
        }
        assert!(one_line(b"{\"a\":\"\xff\"}").is_err());
    }
}
