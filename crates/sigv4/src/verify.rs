//! Checking a signature: the canonical request is made anew from what was received, and signed.
//!
//! Source: <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-authentication-methods.html>

use hmac::Mac;

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
#[derive(Debug, Clone, Copy)]
pub struct Claim<'a> {
    received: Received<'a>,
    authorization: Authorization<'a>,
    date: &'a str,
}

/// What a header `authorization` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Authorization<'a> {
    access_key_id: &'a str,
    day: &'a str,
    region: &'a str,
    service: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
}

impl<'a> Authorization<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix(ALGORITHM)?;
        let part = |name: &str| {
            let mut parts = rest.split(',').map(str::trim);
            parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let mut scope = part("Credential")?.rsplitn(5, '/');
        let (end, service, region) = (scope.next()?, scope.next()?, scope.next()?);
        let (day, access_key_id) = (scope.next()?, scope.next()?);
        (end == END_OF_SCOPE).then_some(Self {
            access_key_id,
            day,
            region,
            service,
            signed_headers: part("SignedHeaders")?,
            signature: part("Signature")?,
        })
    }
}

impl<'a> Received<'a> {
    /// The first value of a header.
    fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.iter().find(|(it, _)| *it == name).map(|(_, value)| *value)
    }

    /// Reads who signed the request for `service`, at most `tolerance_s` before or after `now`,
    /// `20260501T120000Z`. Any region is taken. It takes the head alone, so that nobody's body need be
    /// read who does not even claim to be known.
    ///
    /// # Errors
    /// It is not signed, not wholly, not now, or for another service.
    pub fn claim(&self, service: &str, now: &str, tolerance_s: i64) -> Result<Claim<'a>, Refusal> {
        let Some(text) = self.header("authorization") else {
            return Err(refusal(
                "MissingAuthenticationTokenException",
                "Missing Authentication Token",
            ));
        };
        let authorization = Authorization::read(text).ok_or_else(|| {
            incomplete(
                "Authorization must be AWS4-HMAC-SHA256 with Credential=ID/DAY/REGION/SERVICE/aws4_request, \
                 SignedHeaders and Signature",
            )
        })?;
        let date = self.header("x-amz-date").unwrap_or_default();
        let seconds = seconds_of(date)
            .ok_or_else(|| incomplete("X-Amz-Date must be a date such as 20260501T120000Z"))?;
        if date[..DAY_CHARS] != *authorization.day {
            return Err(incomplete(
                "Date in Credential scope does not match YYYYMMDD from X-Amz-Date",
            ));
        }
        if authorization.service != service {
            let message = format!("Credential should be scoped to correct service: {service}");
            return Err(refusal("InvalidSignatureException", &message));
        }
        let late = seconds_of(now).unwrap_or_default() - seconds;
        if late.abs() > tolerance_s {
            let message = if late > 0 {
                format!("Signature expired: {date} is more than {tolerance_s} s before {now}")
            } else {
                format!(
                    "Signature not yet current: {date} is more than {tolerance_s} s after {now}"
                )
            };
            return Err(refusal("InvalidSignatureException", &message));
        }
        if authorization.signed_headers.split(';').count() > self.headers.len() {
            return Err(incomplete("SignedHeaders names more headers than the request has"));
        }
        let must = |name: &str| name == "host" || name.starts_with("x-amz-");
        let is_signed = |name: &str| authorization.signed_headers.split(';').any(|it| it == name);
        let unsigned = |(name, _): &&(&str, &str)| must(name) && !is_signed(name);
        if let Some((name, _)) = self.headers.iter().find(unsigned) {
            return Err(incomplete(&format!("The header {name} must be signed")));
        }
        Ok(Claim { received: *self, authorization, date })
    }
}

impl<'a> Claim<'a> {
    /// The public part of the credentials that it was signed with.
    #[must_use]
    pub fn access_key_id(&self) -> &'a str {
        self.authorization.access_key_id
    }

    /// Checks that whoever has this secret signed the request, whose body has this [`hash`](crate::hash).
    ///
    /// # Errors
    /// Somebody else signed it, or it was changed since.
    pub fn verify(&self, secret: &str, body_hash: &str) -> Result<(), Refusal> {
        let Authorization { access_key_id, day, region, service, signature, .. } =
            self.authorization;
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
            let mac = scope.key(secret, self.date).0.chain_update(to_sign);
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
        let Received { method, path, query, headers } = self.received;
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
        let paths = [encode(&normal_path(path), true), path.to_owned()];
        let queries = [canonical_query(query, true), canonical_query(query, false)];
        paths.into_iter().flat_map(move |path| {
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

/// A path without empty parts and those that lead to itself or above.
fn normal_path(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let end = if path.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

/// A query's parameters in order; `encoded_anew`: decoded and encoded as AWS does it.
fn canonical_query(query: &str, encoded_anew: bool) -> String {
    let part = |text: &str| {
        if encoded_anew { encode_bytes(&decode(text), false) } else { text.to_owned() }
    };
    let mut pairs: Vec<(String, String)> = (query.split('&'))
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (part(name), part(value)))
        .collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

fn encode(text: &str, keep_slashes: bool) -> String {
    encode_bytes(text.as_bytes(), keep_slashes)
}

fn encode_bytes(bytes: &[u8], keep_slashes: bool) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    for byte in bytes {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
        if plain || keep_slashes && *byte == b'/' {
            encoded.push(char::from(*byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// Percent-decodes; what is not valid stays as it is.
fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let digits = bytes.get(index + 1..index + 3).filter(|_| bytes[index] == b'%');
        match digits.and_then(|digits| unhex(std::str::from_utf8(digits).ok()?)) {
            Some(byte) => {
                decoded.extend(byte);
                index += 3;
            }
            None => {
                decoded.push(bytes[index]);
                index += 1;
            }
        }
    }
    decoded
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|it| it.to_digit(16).map(|it| it as u8)).collect::<Option<_>>()?;
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
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

    #[test]
    fn paths_are_made_plain() {
        for (path, plain) in [("/", "/"), ("//a/./b/../c/", "/a/c/"), ("/../x", "/x"), ("", "/")] {
            assert_eq!(normal_path(path), plain);
        }
        assert_eq!(canonical_query("b=%2f&a=x+y&c", true), "a=x%2By&b=%2F&c=");
    }
}
