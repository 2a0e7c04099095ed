//! Who may use a platform that others than this machine's programs can reach: whoever has its
//! credentials.
//!
//! They are pairs of an access key and a secret, with which clients of AWS sign their requests (Signature
//! Version 4), and tokens, for programs that sign nothing (`Authorization: Bearer`) and for browsers
//! (`Basic`, as the password). A secret leaves its type in no form: not even for debugging.

mod file;

use std::fmt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::request::Parts;
use uncia_sigv4::{Received, Refusal, hash};

use crate::clock;
use crate::runtime::in_proportion;

pub use file::CredentialsError;

/// How old or early a signature may be, in seconds: as on AWS.
const TOLERANCE_S: i64 = 300;
/// The fewest characters of a secret or token that keeps others out: fewer can be guessed.
pub(crate) const MIN_SECRET: usize = 16;

/// The credentials of which each lets whoever has it in.
#[derive(Clone, Default)]
pub struct Access {
    keys: Vec<Key>,
    /// The hashes of tokens, which to compare takes a time that says nothing of them.
    tokens: Vec<String>,
    /// Whether one of them can be guessed.
    is_weak: bool,
}

/// A pair of an access key and its secret.
#[derive(Clone)]
struct Key {
    id: String,
    secret: String,
    /// The session that it is valid in, if only in one.
    session: Option<String>,
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Access")
            .field("keys", &self.keys.len())
            .field("tokens", &self.tokens.len())
            .finish_non_exhaustive()
    }
}

impl Access {
    /// Credentials from a file in the form of AWS's own: sections of `aws_access_key_id`,
    /// `aws_secret_access_key` and `aws_session_token`, or of `uncia_token`.
    ///
    /// # Errors
    /// It cannot be read, others may read it, it has another form, or no credentials in it.
    pub fn of_file(path: &Path) -> Result<Self, CredentialsError> {
        file::read(path)
    }

    /// Credentials from variables of the environment: `AWS_ACCESS_KEY_ID` with `AWS_SECRET_ACCESS_KEY`
    /// and perhaps `AWS_SESSION_TOKEN`, and `UNCIA_TOKEN`. None without them.
    pub fn of_environment(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let variable = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let mut access = Self::default();
        if let (Some(id), Some(secret)) =
            (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"))
        {
            access.is_weak |= is_weak(&secret);
            access.keys.push(Key { id, secret, session: variable("AWS_SESSION_TOKEN") });
        }
        if let Some(token) = variable("UNCIA_TOKEN") {
            access.is_weak |= is_weak(&token);
            access.tokens.push(hash(token.as_bytes()));
        }
        access
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.tokens.is_empty()
    }

    /// Whether there are tokens, which browsers can send.
    pub(crate) fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whether one of them is so short that it can be guessed; a file has no such.
    pub(crate) fn is_weak(&self) -> bool {
        self.is_weak
    }

    /// Checks what a request's head says of who sent it: a token is believed or not, of a signature the
    /// body's part is left to [`Self::check`].
    pub(crate) fn check_head(&self, head: &Parts, service: &str) -> Result<(), Refusal> {
        if let Some(token) = self.token(head) {
            return self.check_token(&token);
        }
        let headers = headers(head);
        self.key_of(&received(head, &headers), service).map(drop)
    }

    /// Checks that a request with this body comes from somebody with credentials.
    pub(crate) async fn check(
        &self,
        head: &Parts,
        body: &Bytes,
        service: &str,
    ) -> Result<(), Refusal> {
        if let Some(token) = self.token(head) {
            return self.check_token(&token);
        }
        let bytes = body.clone();
        let body_hash = in_proportion(body.len(), move || hash(&bytes)).await;
        let headers = headers(head);
        let received = received(head, &headers);
        let (claim, key) = self.key_of(&received, service)?;
        claim.verify(&key.secret, &body_hash)
    }

    /// The token that a request carries, if there are any to compare it with.
    fn token(&self, head: &Parts) -> Option<String> {
        token(head).filter(|_| self.has_tokens())
    }

    /// Whether a request carries one of the platform's tokens, which no function is to see.
    pub(crate) fn is_known_token(&self, head: &Parts) -> bool {
        self.token(head).is_some_and(|token| self.check_token(&token).is_ok())
    }

    fn check_token(&self, token: &str) -> Result<(), Refusal> {
        let given = hash(token.as_bytes());
        if self.tokens.contains(&given) {
            return Ok(());
        }
        Err(unknown("The token of the request is none of the platform's"))
    }

    /// What a request claims, and the key with which it must be signed.
    fn key_of<'a>(
        &self,
        received: &Received<'a>,
        service: &str,
    ) -> Result<(uncia_sigv4::Claim<'a>, &Key), Refusal> {
        let now = clock::basic_iso_8601(clock::unix_ns() / 1_000_000);
        let claim = received.claim(service, &now, TOLERANCE_S)?;
        let key = self.keys.iter().find(|key| key.id == claim.access_key_id());
        let key = key.ok_or_else(|| {
            unknown(
                "The security token included in the request is invalid: its access key is not the \
                 platform's",
            )
        })?;
        if key.session.as_deref().is_some_and(|it| claim.session() != Some(it)) {
            return Err(unknown(
                "X-Amz-Security-Token is not the session's that the access key is valid in",
            ));
        }
        Ok((claim, key))
    }
}

fn is_weak(secret: &str) -> bool {
    secret.chars().count() < MIN_SECRET
}

fn unknown(message: &str) -> Refusal {
    Refusal { kind: "UnrecognizedClientException", message: message.to_owned() }
}

/// The names and values of headers. What is no text counts, too: it must be signed if another value must.
fn headers(head: &Parts) -> Vec<(&str, &str)> {
    let text = |value| std::str::from_utf8(value).unwrap_or("\u{fffd}");
    let headers = head.headers.iter();
    headers.map(|(name, value)| (name.as_str(), text(value.as_bytes()))).collect()
}

/// The path that a client has sent, where that of the request is another by now; an extension of requests.
#[derive(Debug, Clone)]
pub(crate) struct SentPath(pub String);

fn received<'a>(head: &'a Parts, headers: &'a [(&'a str, &'a str)]) -> Received<'a> {
    Received {
        method: head.method.as_str(),
        path: head.extensions.get::<SentPath>().map_or(head.uri.path(), |sent| &sent.0),
        query: head.uri.query().unwrap_or_default(),
        headers,
    }
}

/// The token that a request carries, if it does not carry a signature.
fn token(head: &Parts) -> Option<String> {
    let text = head.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, rest) = text.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// Whether a request carries a token in the way of browsers, which send it unasked once they know it.
pub(crate) fn is_of_a_browser(head: &Parts) -> bool {
    let text = head.headers.get(AUTHORIZATION).and_then(|text| text.to_str().ok());
    text.and_then(|it| it.get(..6)).is_some_and(|it| it.eq_ignore_ascii_case("basic "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(authorization: &str) -> Parts {
        let request = http::Request::get("/").header("authorization", authorization);
        request.body(()).unwrap().into_parts().0
    }

    fn with_token(token: &str) -> Access {
        Access::of_environment(|name| (name == "UNCIA_TOKEN").then(|| token.to_owned()))
    }

    #[tokio::test]
    async fn a_token_is_believed_in_both_of_its_forms() {
        let access = with_token("0123456789abcdef");
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for (authorization, is_believed) in [
            ("Bearer 0123456789abcdef", true),
            ("bearer  0123456789abcdef", true),
            ("Bearer 0123456789abcdeF", false),
            ("Bearer", false),
            ("Bearer ", false),
            (&basic("anybody:0123456789abcdef"), true),
            (&basic("0123456789abcdef"), false),
            ("Basic ???", false),
        ] {
            let (head, body) = (head(authorization), Bytes::new());
            assert_eq!(access.check_head(&head, "lambda").is_ok(), is_believed, "{authorization}");
            assert_eq!(access.check(&head, &body, "lambda").await.is_ok(), is_believed);
        }
        let nobody = Access::default();
        assert!(nobody.is_empty() && nobody.check_head(&head("Bearer "), "lambda").is_err());
        assert!(is_of_a_browser(&head("basic eDp5")) && !is_of_a_browser(&head("Bearer x")));
    }

    #[test]
    fn headers_that_are_no_text_count() {
        let request =
            http::Request::get("/").header("x-amz-a", "ä").header("x-amz-b", &b"\xff"[..]);
        let (head, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(headers(&head), [("x-amz-a", "ä"), ("x-amz-b", "\u{fffd}")]);
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let access = Access::of_environment(|name| Some(format!("secret {name}")));
        let shown = format!("{access:?}");
        assert_eq!(shown, "Access { keys: 1, tokens: 1, .. }");
        assert!(!access.is_weak() && with_token("short").is_weak());
    }
}
