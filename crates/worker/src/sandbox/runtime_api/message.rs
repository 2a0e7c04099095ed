//! What runtimes are sent.

use super::request::Reply;
use crate::instance::Request;
use crate::sandbox::http1::{head, response};

/// Payloads up to this size are sent in one write with their head.
pub(super) const ONE_WRITE: usize = 64 * 1024;

/// What is no event, but an order to the platform's own client.
const ORDER: &str = "Uncia-Order";

const NS_PER_MS: i64 = 1_000_000;

/// The message that carries an event at `now`, in Unix ns; a long payload is not part of it.
pub(super) fn event(request: &Request, function_arn: &str, now: i64) -> Vec<u8> {
    let deadline = deadline_ms(request, now).to_string();
    let trace = trace_id(&request.request_id);
    let arn = request.invoked_arn.as_deref().unwrap_or(function_arn);
    let context = request.client_context.as_deref().and_then(plain_context);
    let mut headers = vec![
        ("Lambda-Runtime-Aws-Request-Id", request.request_id.as_str()),
        ("Lambda-Runtime-Deadline-Ms", deadline.as_str()),
        ("Lambda-Runtime-Invoked-Function-Arn", arn),
        ("Lambda-Runtime-Trace-Id", trace.as_str()),
    ];
    if let Some(context) = &context {
        headers.push(("Lambda-Runtime-Client-Context", context));
    }
    if let Some(order) = request.order {
        headers.push((ORDER, order));
    }
    let mut message = head(200, request.payload.len(), &headers);
    if request.payload.len() <= ONE_WRITE {
        message.extend_from_slice(&request.payload);
    }
    message
}

/// When the time of an event is up that a runtime is given at `now`, in Unix ns: in Unix ms.
pub(super) fn deadline_ms(request: &Request, now: i64) -> i64 {
    let limit = i64::try_from(request.timeout.as_nanos()).unwrap_or(i64::MAX);
    now.saturating_add(limit) / NS_PER_MS
}

/// The reply to what was of use.
pub(super) fn accepted() -> Reply {
    Reply { bytes: response(202, br#"{"status":"OK"}"#), refused: false }
}

/// The reply to what was of no use.
pub(super) fn refusal(status: u16, kind: &str, message: &str) -> Reply {
    Reply { bytes: response(status, error_object(kind, message).as_bytes()), refused: true }
}

/// An error as runtimes describe theirs.
pub(super) fn error_object(kind: &str, message: &str) -> String {
    serde_json::json!({ "errorMessage": message, "errorType": kind }).to_string()
}

/// A trace id in X-Ray's form, which is not sampled by anybody. Its root is the request's id, by which what
/// runs in a function can say who it is without being told: as writers of documents do.
pub(super) fn trace_id(request_id: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = hex::encode(Sha256::digest(request_id.as_bytes()));
    let id: String = request_id.chars().filter(char::is_ascii_hexdigit).collect();
    let root = if id.len() == 32 { &id } else { &digest };
    format!("Root=1-{}-{};Parent={};Sampled=0", &root[..8], &root[8..32], &digest[32..48])
}

/// The client context as runtimes expect it: JSON in ASCII, on one line.
fn plain_context(base64: &str) -> Option<String> {
    use base64::Engine;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).ok()?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    let mut text = String::new();
    for character in value.to_string().chars() {
        if character.is_ascii() {
            text.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    Some(text)
}
