//! Signatures of requests to function URLs with `AuthType=AWS_IAM`.

use http::request::Parts;
use uncia_sigv4::Received;

use super::credentials::Credentials;
use super::error::ApiError;
use crate::clock;

/// For what service requests are signed.
const SERVICE: &str = "lambda";
/// How old or early a signature may be, in seconds: as on AWS.
const TOLERANCE_S: i64 = 300;

/// Checks that the platform can check signatures at all.
pub(super) fn check_possible() -> Result<(), ApiError> {
    Credentials::of_environment("URLs of AuthType AWS_IAM").map(drop)
}

/// Checks that whoever has the platform's credentials signed a request.
pub(super) fn check(head: &Parts, body: &[u8]) -> Result<(), ApiError> {
    let own = Credentials::of_environment("URLs of AuthType AWS_IAM")
        .map_err(|error| ApiError::denied(error.message))?;
    let headers: Vec<(&str, &str)> = (head.headers.iter())
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let received = Received {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        headers: &headers,
        body,
    };
    let now = clock::basic_iso_8601(clock::unix_ns() / 1_000_000);
    received
        .verify((&own.access_key_id, &own.secret), SERVICE, &now, TOLERANCE_S)
        .map_err(|refusal| ApiError::unsigned(refusal.kind, refusal.message))?;
    let token = head.headers.get("x-amz-security-token").and_then(|it| it.to_str().ok());
    if own.token.as_deref() != token && own.token.is_some() {
        let message = "X-Amz-Security-Token is not the platform's AWS_SESSION_TOKEN";
        return Err(ApiError::unsigned("UnrecognizedClientException", message.to_owned()));
    }
    Ok(())
}
