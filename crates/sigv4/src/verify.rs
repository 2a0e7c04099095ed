//! Checking a signature: the canonical request is made anew from what was received, and signed.
//!
//! Source: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-authentication-methods.html>

use std::borrow::Cow;

use hmac::Mac;

use crate::authorization::{Authorization, Presigned};
use crate::canonical::{canonical_query, encode, leads_elsewhere, normal_path, unhex};
use crate::{ALGORITHM, DAY_CHARS, END_OF_SCOPE, Scope, hash};

/// The length of a date such as `20260501T120000Z`.
const DATE_CHARS: usize = 16;

/// Why a request is not believed, in AWS's words for it and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Such as `InvalidSignatureException`.
    pub kind: &'static str,
    /// What is wrong.
    pub message: String,
}

/// The head of a request as it was received.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// The method in capitals.
    pub method: &'a str,
    /// As it was sent, percent-encoded.
    pub path: &'a str,
    /// As it was sent, without the question mark.
    pub query: &'a str,
    /// Names in lower case, and values.
    pub headers: &'a [(&'a str, &'a str)],
}

/// What a request says about who signed it: whole, of now and for this service, and not believed yet.
#[derive(Debug, Clone)]
pub struct Claim<'a> {
    received: Received<'a>,
    authorization: Authorization,
    date: Cow<'a, str>,
    /// For how long after its date it is good, in seconds, if it says so.
    expires_s: Option<i64>,
    session: Option<Cow<'a, str>>,
    /// What of the query is signed.
    query: Cow<'a, str>,
}

impl<'a> Received<'a> {
    /// The first value of a header.
    fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(it, _)| *it == name).map(|(_, value)| *value)
    }

    /// Reads who signed the request for `service`, in its header or in its query, at most `tolerance_s` before or
    /// after `now`, `20260501T120000Z`; what is signed in the query is good for as long as it says there. Any
    /// region is taken. It takes the head alone, so that nobody's body need be read who does not even claim to be
    /// known.
    ///
    /// # Errors
    /// It is not signed, not wholly, not now, or for another service.
    pub fn claim(&self, service: &str, now: &str, tolerance_s: i64) -> Result<Claim<'a>, Refusal> {
        let claim = match (self.header("authorization"), Presigned::read(self.query)) {
            (Some(text), _) => self.of_header(text)?,
            (None, Some(presigned)) => self.of_query(presigned.map_err(incomplete)?),
            (None, None) => {
                return Err(refusal(
                    "MissingAuthenticationTokenException",
                    "Missing Authentication Token",
                ));
            }
        };
        claim.check(service, now, tolerance_s)?;
        Ok(claim)
    }

    fn of_header(&self, text: &str) -> Result<Claim<'a>, Refusal> {
        let authorization = Authorization::read(text).ok_or_else(|| {
            incomplete(
                "Authorization must be AWS4-HMAC-SHA256 with Credential=ID/DAY/REGION/SERVICE/aws4_request, \
                 SignedHeaders and Signature",
            )
        })?;
        Ok(Claim {
            received: *self,
            authorization,
            date: self.header("x-amz-date").unwrap_or_default().into(),
            expires_s: None,
            session: self.header("x-amz-security-token").map(Cow::from),
            query: self.query.into(),
        })
    }

    fn of_query(&self, presigned: Presigned) -> Claim<'a> {
        Claim {
            received: *self,
            authorization: presigned.authorization,
            date: presigned.date.into(),
            expires_s: Some(presigned.expires_s),
            session: presigned.session.map(Cow::from),
            query: presigned.query.into(),
        }
    }
}

impl Claim<'_> {
    /// The public part of the credentials that it was signed with.
    #[must_use]
    pub fn access_key_id(&self) -> &str {
        &self.authorization.access_key_id
    }

    /// The session that the credentials are of, if it names one.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Checks all that takes neither secret nor body.
    fn check(&self, service: &str, now: &str, tolerance_s: i64) -> Result<(), Refusal> {
        let (authorization, date) = (&self.authorization, &*self.date);
        let seconds = seconds_of(date)
            .ok_or_else(|| incomplete("X-Amz-Date must be a date such as 20260501T120000Z"))?;
        if date[..DAY_CHARS] != authorization.day {
            return Err(incomplete(
                "Date in Credential scope does not match YYYYMMDD from X-Amz-Date",
            ));
        }
        if authorization.service != service {
            let message = format!("Credential should be scoped to correct service: {service}");
            return Err(refusal("InvalidSignatureException", &message));
        }
        let late = seconds_of(now).unwrap_or_default() - seconds;
        let good_s = self.expires_s.unwrap_or(tolerance_s);
        if late > good_s || -late > tolerance_s {
            let message = if late > 0 {
                format!("Signature expired: {date} is more than {good_s} s before {now}")
            } else {
                format!(
                    "Signature not yet current: {date} is more than {tolerance_s} s after {now}"
                )
            };
            return Err(refusal("InvalidSignatureException", &message));
        }
        let headers = self.received.headers;
        if authorization.signed_headers.split(';').count() > headers.len() {
            return Err(incomplete("SignedHeaders names more headers than the request has"));
        }
        let must = |name: &str| name == "host" || name.starts_with("x-amz-");
        let is_signed = |name: &str| authorization.signed_headers.split(';').any(|it| it == name);
        let unsigned = |(name, _): &&(&str, &str)| must(name) && !is_signed(name);
        if let Some((name, _)) = headers.iter().find(unsigned) {
            return Err(incomplete(&format!("The header {name} must be signed")));
        }
        Ok(())
    }

    /// Checks that whoever has this secret signed the request, whose body has this [`hash`](crate::hash).
    ///
    /// # Errors
    /// Somebody else signed it, or it was changed since.
    pub fn verify(&self, secret: &str, body_hash: &str) -> Result<(), Refusal> {
        let Authorization { access_key_id, day, region, service, signature, .. } =
            &self.authorization;
        if self.received.header("x-amz-content-sha256").is_some_and(|it| it != body_hash) {
            let message = "X-Amz-Content-SHA256 is not the digest of the body";
            return Err(refusal("InvalidSignatureException", message));
        }
        let scope = Scope { access_key_id, region, service };
        let credential = format!("{day}/{region}/{service}/{END_OF_SCOPE}");
        // In a time that does not depend on how much of it is right.
        let given = unhex(signature);
        let signed = self.canonical_forms(body_hash).any(|canonical| {
            let to_sign =
                format!("{ALGORITHM}\n{}\n{credential}\n{}", self.date, hash(canonical.as_bytes()));
            let mac = scope.key(secret, &self.date).0.chain_update(to_sign);
            given.as_deref().is_some_and(|given| mac.verify_slice(given).is_ok())
        });
        if signed {
            return Ok(());
        }
        Err(refusal(
            "InvalidSignatureException",
            "The request signature we calculated does not match the signature you provided. Check your \
             AWS Secret Access Key and signing method.",
        ))
    }

    /// The canonical request, in the forms that clients give it: they differ in whether what is encoded
    /// in path and query already is encoded again.
    fn canonical_forms(&self, body_hash: &str) -> impl Iterator<Item = String> {
        let Received { method, path, headers, .. } = self.received;
        let mut lines = String::new();
        for name in self.authorization.signed_headers.split(';') {
            let values: Vec<String> = headers
                .iter()
                .filter(|(it, _)| *it == name)
                .map(|(_, value)| value.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            lines.push_str(&format!("{name}:{}\n", values.join(",")));
        }
        let tail = format!("{lines}\n{}\n{body_hash}", self.authorization.signed_headers);
        let method = method.to_owned();
        let normal = (!leads_elsewhere(path)).then(|| encode(&normal_path(path), true));
        let paths = [Some(path.to_owned()), normal];
        let queries = [canonical_query(&self.query, true), canonical_query(&self.query, false)];
        paths.into_iter().flatten().flat_map(move |path| {
            let (method, tail) = (method.clone(), tail.clone());
            queries.clone().map(|query| format!("{method}\n{path}\n{query}\n{tail}"))
        })
    }
}

fn incomplete(message: &str) -> Refusal {
    refusal("IncompleteSignatureException", message)
}

fn refusal(kind: &'static str, message: &str) -> Refusal {
    Refusal { kind, message: message.to_owned() }
}

/// The seconds since 1970 of a date such as `20260501T120000Z`.
fn seconds_of(date: &str) -> Option<i64> {
    let fine = date.len() == DATE_CHARS
        && date.is_ascii()
        && date.as_bytes()[DAY_CHARS] == b'T'
        && date.ends_with('Z');
    if !fine {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = &date[from..to];
        digits.bytes().all(|it| it.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    if !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    // Days of the Gregorian calendar, in years that begin with March: February ends them.
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const DATE: &str = "20150830T123600Z";

    fn authorization(signature: &str) -> String {
        format!(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
             SignedHeaders=host;x-amz-date, Signature={signature}"
        )
    }

    fn check(path: &str, query: &str, signature: &str, now: &str) -> Result<(), Refusal> {
        let authorization = authorization(signature);
        let headers = [
            ("host", "example.amazonaws.com"),
            ("x-amz-date", DATE),
            ("authorization", &authorization),
        ];
        let received = Received { method: "GET", path, query, headers: &headers };
        received.claim("service", now, 300)?.verify(SECRET, &hash(b""))
    }

    /// Examples of AWS's test suite for this version of signatures: `get-vanilla`,
    /// `get-vanilla-query-order-key-case` and `get-vanilla-query-unreserved`.
    #[test]
    fn requests_of_awss_test_suite_are_believed() {
        for (query, signature) in [
            ("", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
            (
                "Param2=value2&Param1=value1",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=\
                 -._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
                "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
            ),
        ] {
            check("/", query, signature, DATE).unwrap();
            let other = signature.replace('5', "6");
            assert_eq!(
                check("/", query, &other, DATE).unwrap_err().kind,
                "InvalidSignatureException"
            );
        }
    }

    #[test]
    fn what_was_changed_or_is_old_is_not() {
        let signature = "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31";
        let message = |result: Result<(), Refusal>| result.unwrap_err().message;
        assert!(message(check("/x", "", signature, DATE)).contains("does not match"));
        assert!(message(check("/", "a=b", signature, DATE)).contains("does not match"));
        check("/", "", signature, "20150830T124100Z").unwrap();
        assert!(message(check("/", "", signature, "20150830T124101Z")).contains("expired"));
        assert!(message(check("/", "", signature, "20150830T123059Z")).contains("not yet current"));
        for torn in ["", "zz", &signature[..62], "é"] {
            assert!(message(check("/", "", torn, DATE)).contains("does not match"));
        }
    }

    /// What an address is presigned with, at [`DATE`] for a minute. The signature is botocore's (`SigV4QueryAuth`).
    const PRESIGNED: &str = "a=b%2Fc&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20150830%2F\
         us-east-1%2Fservice%2Faws4_request&X-Amz-Date=20150830T123600Z&X-Amz-Expires=60&X-Amz-SignedHeaders=\
         host&X-Amz-Signature=6bb603b701793d22c8d6cbf8e9c149a05fb5689f683579486f4c052c2303926f";

    #[test]
    fn a_presigned_address_is_good_for_as_long_as_it_says() {
        let ask = |method: &str, path: &str, query: &str, now: &str, body: &[u8]| {
            let headers = [("host", "example.amazonaws.com")];
            let received = Received { method, path, query, headers: &headers };
            let claim = received.claim("service", now, 300).map_err(|it| it.message)?;
            claim.verify(SECRET, &hash(body)).map_err(|it| it.message)
        };
        let late = "20150830T123700Z";
        assert_eq!(ask("GET", "/p", PRESIGNED, DATE, b""), Ok(()));
        assert_eq!(ask("GET", "/p", PRESIGNED, late, b""), Ok(()));
        let longer = PRESIGNED.replace("Expires=60", "Expires=61");
        let other = PRESIGNED.replace("a=b", "a=c");
        for (method, path, query, now, body, words) in [
            ("GET", "/p", PRESIGNED, "20150830T123701Z", &b""[..], "more than 60 s before"),
            ("GET", "/p", PRESIGNED, "20150830T123000Z", b"", "not yet current"),
            ("GET", "/p", &longer, late, b"", "does not match"),
            ("GET", "/p", &other, late, b"", "does not match"),
            ("GET", "/q", PRESIGNED, late, b"", "does not match"),
            ("POST", "/p", PRESIGNED, late, b"", "does not match"),
            ("GET", "/p", PRESIGNED, late, b"body", "does not match"),
            ("GET", "/p", &PRESIGNED[..50], late, b"", "must have X-Amz-Credential"),
        ] {
            let message = ask(method, path, query, now, body).unwrap_err();
            assert!(message.contains(words), "{query}: {message}");
        }
    }

    #[test]
    fn a_signature_is_for_no_other_path() {
        // A client that normalizes `/a/b/c/../d` signs the same as for `/a/b/d`.
        for (path, leads) in [
            ("/url/id/x/../y", false),
            ("/url/id/./y//z", false),
            ("/url/other/../id/y", true),
            ("/url/id/../../url/other/y", true),
            ("/../url/id/y", true),
            ("/url/./id/y", true),
            ("//url/id/y", true),
        ] {
            assert_eq!(leads_elsewhere(path), leads, "{path}");
        }
    }

    #[test]
    fn what_must_be_signed_is() {
        let authorization =
            authorization("5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
        let headers = [
            ("host", "example.amazonaws.com"),
            ("x-amz-date", DATE),
            ("x-amz-target", "other"),
            ("authorization", authorization.as_str()),
        ];
        let kind = |headers: &[(&str, &str)], body: &[u8]| {
            let received = Received { method: "GET", path: "/", query: "", headers };
            let claim = received.claim("service", DATE, 300);
            claim.and_then(|it| it.verify(SECRET, &hash(body))).map_err(|it| it.kind)
        };
        assert_eq!(kind(&headers, b""), Err("IncompleteSignatureException"));
        let fine = [headers[0], headers[1], headers[3]];
        assert_eq!(kind(&fine, b""), Ok(()));
        assert_eq!(kind(&fine, b"body"), Err("InvalidSignatureException"));
        assert_eq!(kind(&fine[..2], b""), Err("MissingAuthenticationTokenException"));
        let received = Received { method: "GET", path: "/", query: "", headers: &fine };
        let claim = received.claim("service", DATE, 300).unwrap();
        assert_eq!(claim.access_key_id(), "AKIDEXAMPLE");
        let refused = claim.verify("other", &hash(b"")).unwrap_err();
        assert_eq!(refused.kind, "InvalidSignatureException");
        let refused = received.claim("lambda", DATE, 300).unwrap_err();
        assert_eq!(refused.kind, "InvalidSignatureException");
        let basic = [headers[0], headers[1], ("authorization", "Basic eDp5")];
        assert_eq!(kind(&basic, b""), Err("IncompleteSignatureException"));
    }

    #[test]
    fn dates_are_seconds() {
        assert_eq!(seconds_of("19700101T000000Z"), Some(0));
        assert_eq!(seconds_of("20000229T000000Z"), Some(951_782_400));
        assert_eq!(seconds_of("20000301T000000Z"), Some(951_868_800));
        assert_eq!(seconds_of("20991231T235959Z"), Some(4_102_444_799));
        for bad in [
            "",
            "20150830",
            "20151330T123600Z",
            "20150830T243600Z",
            "2015083éT12360Z",
            "+0150830T123600Z",
        ] {
            assert_eq!(seconds_of(bad), None, "{bad}");
        }
    }
}
