//! Who is answered where credentials are asked for: whoever has them, and everybody at the URLs of
//! functions that are to be public (`AuthType` `NONE`). Who comes by a unix socket needs none.

use bytes::Bytes;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use uncia_sigv4::Refusal;

use super::connections::Client;
use super::error::{Answer, ApiError};
use super::machines::TARGET;
use super::{Api, guard};
use crate::access::is_of_a_browser;

/// For what service requests are signed, but for those to state machines.
pub(super) const LAMBDA: &str = "lambda";
const STATES: &str = "states";
/// What asks a browser's user for the token.
const CHALLENGE: &str = "Basic realm=\"Uncia: the token is the password\", charset=\"UTF-8\"";

/// What is left to be checked of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// Nothing.
    Free,
    /// That its body is the one that was signed.
    Signed,
}

impl Api {
    /// Checks by its head whether a request is to be read at all: nobody's body takes room here who does
    /// not know a name to sign with.
    pub(super) fn admit(&self, head: &Parts, client: Client) -> Result<Admission, Refusal> {
        if !self.is_guarded || client == Client::Owner {
            return Ok(Admission::Free);
        }
        let path = head.uri.path();
        let function = guard::url_id(path).and_then(|id| self.registry.by_url(id));
        let is_signed = function.map(|it| it.url.as_ref().is_some_and(|url| url.signed));
        if is_signed == Some(false) {
            return Ok(Admission::Free);
        }
        if is_of_a_browser(head) && !(guard::is_of_the_page(path) && head.method == Method::GET) {
            let message = "Basic authorization is for the page and /metrics; sign the request, or send the \
                           token as Authorization: Bearer";
            return Err(Refusal { kind: "AccessDeniedException", message: message.to_owned() });
        }
        self.access.check_head(head, service(head))?;
        // URLs whose requests must be signed see to it themselves, wherever the platform listens.
        Ok(if is_signed.is_some() { Admission::Free } else { Admission::Signed })
    }

    /// Checks the rest, with the body.
    pub(super) async fn check(
        &self,
        admission: Admission,
        head: &Parts,
        body: &Bytes,
    ) -> Result<(), Refusal> {
        match admission {
            Admission::Free => Ok(()),
            Admission::Signed => self.access.check(head, body, service(head)).await,
        }
    }

    /// The answer to who is not let in, the connection's last.
    pub(super) fn turn_away(&self, refusal: Refusal, head: &Parts) -> Answer {
        let mut error = ApiError::unsigned(refusal.kind, refusal.message);
        let asks = guard::is_of_the_page(head.uri.path()) && self.access.has_tokens();
        let is_wrong = head.headers.contains_key(AUTHORIZATION) && !is_of_a_browser(head);
        let asks = asks && !is_wrong;
        if asks {
            error.status = StatusCode::UNAUTHORIZED;
        }
        let mut answer = super::last(error.answer());
        if asks {
            let challenge = HeaderValue::from_static(CHALLENGE);
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        answer
    }
}

/// The service that a request must be signed for.
fn service(head: &Parts) -> &'static str {
    let target = head.headers.get("x-amz-target").and_then(|target| target.to_str().ok());
    match target {
        Some(target) if target.starts_with(TARGET) => STATES,
        _ => LAMBDA,
    }
}
