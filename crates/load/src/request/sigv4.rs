//! AWS Signature Version 4, in headers.
//!
//! A signature holds for the second in `x-amz-date`, so that of a request that is otherwise always
//! the same is computed once a second. The header with the invocation id is not signed, and neither
//! are those that proxies change.

use std::sync::{Mutex, PoisonError};

use uncia_sigv4::{Key, Scope, hash};

use super::encode::{is_unreserved, push_keeping};
use super::template::{Pieces, Values};
use crate::config::{AwsSigv4, Secret};

const NS_PER_S: i64 = 1_000_000_000;
const S_PER_DAY: i64 = 86_400;

pub(super) const AUTHORIZATION: &str = "authorization";
pub(super) const DATE: &str = "x-amz-date";
pub(super) const TOKEN: &str = "x-amz-security-token";
pub(super) const CONTENT_HASH: &str = "x-amz-content-sha256";
/// Headers that signing sets, or that would take the place of one.
pub(super) const RESERVED: [&str; 5] = [AUTHORIZATION, DATE, TOKEN, CONTENT_HASH, "date"];
/// What is between a client and the service may change these.
const UNSIGNED: [&str; 4] = ["expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"];

/// What a header says when it is signed.
enum Signed {
    Value(Pieces),
    Secret(Secret),
    Date,
    ContentHash,
}

/// What is signed but for the headers.
pub(super) struct Unsigned<'a> {
    /// Path and query as they are sent.
    pub target: Vec<u8>,
    pub body: &'a [u8],
    pub values: Values<'a>,
}

/// The headers that differ from request to request.
#[derive(Clone)]
pub(super) struct Stamp {
    pub date: String,
    pub authorization: String,
    /// Of the body, in hexadecimal digits; only for services that want it in a header.
    pub content_hash: Option<String>,
}

impl Stamp {
    pub(super) fn headers(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let content_hash = self.content_hash.as_ref().map(|hash| (CONTENT_HASH, hash.as_bytes()));
        [(DATE, self.date.as_bytes()), (AUTHORIZATION, self.authorization.as_bytes())]
            .into_iter()
            .chain(content_hash)
    }
}

#[derive(Default)]
struct Cache {
    /// The day's key, by the day.
    key: Option<(i64, Key)>,
    /// The stamp of a request that is always the same, by the second.
    stamp: Option<(i64, Stamp)>,
}

/// Signs the requests of one target.
pub(super) struct Signer {
    sign: AwsSigv4,
    method: String,
    /// In the order of their names.
    headers: Vec<(String, Signed)>,
    /// Of the body, if it is always the same.
    body_hash: Option<String>,
    is_constant: bool,
    cache: Mutex<Cache>,
}

impl Signer {
    /// `headers` are all that are sent but for those of the signature; `body` if it is always the
    /// same; `is_constant` if the request's target, headers and body are.
    pub(super) fn new(
        sign: &AwsSigv4,
        method: &str,
        headers: &[(String, Pieces)],
        body: Option<&[u8]>,
        is_constant: bool,
    ) -> Self {
        let signed = headers.iter().filter(|(name, _)| !UNSIGNED.contains(&name.as_str()));
        let mut headers: Vec<_> =
            signed.map(|(name, value)| (name.clone(), Signed::Value(value.clone()))).collect();
        headers.push((DATE.to_owned(), Signed::Date));
        if let Some(token) = &sign.session_token {
            headers.push((TOKEN.to_owned(), Signed::Secret(token.clone())));
        }
        if is_s3(sign) {
            headers.push((CONTENT_HASH.to_owned(), Signed::ContentHash));
        }
        headers.sort_by(|one, other| one.0.cmp(&other.0));
        Self {
            sign: sign.clone(),
            method: method.to_owned(),
            headers,
            body_hash: body.map(hash),
            is_constant,
            cache: Mutex::default(),
        }
    }

    /// Hands over the stamp of a request; `request` is asked for if there is none as yet.
    pub(super) fn stamp<'r, T>(
        &self,
        unix_ns: i64,
        request: impl FnOnce() -> Unsigned<'r>,
        take: impl FnOnce(&Stamp) -> T,
    ) -> T {
        let second = unix_ns.div_euclid(NS_PER_S);
        // What a panic left behind is replaced as a whole.
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        match &cache.stamp {
            Some((of, stamp)) if *of == second => return take(stamp),
            _ => {}
        }
        let key = match &cache.key {
            Some((day, key)) if *day == second.div_euclid(S_PER_DAY) => key.clone(),
            _ => {
                let secret = self.sign.secret_access_key.reveal();
                let key = scope(&self.sign).key(secret, &date(second));
                cache.key = Some((second.div_euclid(S_PER_DAY), key.clone()));
                key
            }
        };
        let stamp = self.sign(second, key, &request());
        let taken = take(&stamp);
        if self.is_constant {
            cache.stamp = Some((second, stamp));
        }
        taken
    }

    fn sign(&self, second: i64, key: Key, request: &Unsigned) -> Stamp {
        let date = date(second);
        let body_hash = self.body_hash.clone().unwrap_or_else(|| hash(request.body));
        let canonical = self.canonical_request(&date, &body_hash, request);
        let authorization = scope(&self.sign).authorization(key, &date, &self.names(), &canonical);
        let content_hash = is_s3(&self.sign).then_some(body_hash);
        Stamp { date, authorization, content_hash }
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.join(";")
    }

    fn canonical_request(&self, date: &str, body_hash: &str, request: &Unsigned) -> Vec<u8> {
        let (path, query) = match request.target.iter().position(|&byte| byte == b'?') {
            Some(at) => (&request.target[..at], &request.target[at + 1..]),
            None => (&request.target[..], &[][..]),
        };
        let mut out = self.method.clone().into_bytes();
        out.push(b'\n');
        if is_s3(&self.sign) {
            out.extend_from_slice(path);
        } else {
            // What is encoded already is encoded once more.
            let keep = |byte| is_unreserved(byte) || byte == b'/';
            push_keeping(&mut out, &without_dot_segments(path), keep);
        }
        out.push(b'\n');
        push_canonical_query(&mut out, query);
        out.push(b'\n');
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            match value {
                Signed::Value(value) => push_squeezed(&mut out, &value.render(request.values)),
                Signed::Secret(secret) => out.extend_from_slice(secret.reveal().as_bytes()),
                Signed::Date => out.extend_from_slice(date.as_bytes()),
                Signed::ContentHash => out.extend_from_slice(body_hash.as_bytes()),
            }
            out.push(b'\n');
        }
        out.push(b'\n');
        out.extend_from_slice(self.names().as_bytes());
        out.push(b'\n');
        out.extend_from_slice(body_hash.as_bytes());
        out
    }
}

/// S3 takes paths as they are, and wants to be told the hash of the body.
pub(super) fn is_s3(sign: &AwsSigv4) -> bool {
    sign.service == "s3"
}

fn scope(sign: &AwsSigv4) -> Scope<'_> {
    Scope { access_key_id: &sign.access_key_id, region: &sign.region, service: &sign.service }
}

/// RFC 3986, 5.2.4, and no empty segments either.
fn without_dot_segments(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for segment in path.split(|&byte| byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => {
                kept.pop();
            }
            _ => kept.push(segment),
        }
    }
    let mut out = b"/".to_vec();
    out.extend_from_slice(&kept.join(&b'/'));
    if path.ends_with(b"/") && !kept.is_empty() {
        out.push(b'/');
    }
    out
}

/// Sorted by name, then by value; both are encoded already.
fn push_canonical_query(out: &mut Vec<u8>, query: &[u8]) {
    let pairs = query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(&[u8], &[u8])> = pairs
        .map(|pair| match pair.iter().position(|&byte| byte == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &[][..]),
        })
        .collect();
    pairs.sort_unstable();
    for (index, (name, value)) in pairs.into_iter().enumerate() {
        if index > 0 {
            out.push(b'&');
        }
        out.extend_from_slice(name);
        out.push(b'=');
        out.extend_from_slice(value);
    }
}

/// Without white space at the ends, and with one space for each run of it.
fn push_squeezed(out: &mut Vec<u8>, value: &[u8]) {
    let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    for (index, word) in words.enumerate() {
        if index > 0 {
            out.push(b' ');
        }
        out.extend_from_slice(word);
    }
}

/// `20260501T120000Z`, for the years 1677 to 2262 that times can be in.
fn date(second: i64) -> String {
    let (year, month, day) = civil(second.div_euclid(S_PER_DAY));
    let time = second.rem_euclid(S_PER_DAY);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Year, month and day of the day with this number since 1970-01-01, in the Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    const DAYS_PER_ERA: i64 = 146_097;
    // Years are counted from 0000-03-01, so that a leap day ends one; an era has 400 of them.
    let days = days + 719_468;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Five months from March on have 153 days, whichever five they are.
    let months = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months + 2) / 5 + 1;
    let month = if months < 10 { months + 3 } else { months - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (second, expected) in [
            (0, "19700101T000000Z"),
            (-1, "19691231T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_440_938_160, "20150830T123600Z"),
            (1_709_251_199, "20240229T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
            (i64::MAX / NS_PER_S, "22620411T234716Z"),
            (i64::MIN / NS_PER_S, "16770921T001244Z"),
        ] {
            assert_eq!(date(second), expected);
        }
    }

    #[test]
    fn paths_and_queries_are_canonical() {
        for (path, expected) in
            [("/", "/"), ("/a//b/./c/../d/", "/a/b/d/"), ("/..", "/"), ("/../a", "/a"), ("//", "/")]
        {
            assert_eq!(without_dot_segments(path.as_bytes()), expected.as_bytes(), "{path}");
        }
        for (query, expected) in [
            ("", ""),
            ("b=2&a=1&a=0&c", "a=0&a=1&b=2&c="),
            ("&&a&", "a="),
            ("a-b=1&a=1", "a=1&a-b=1"),
        ] {
            let mut out = Vec::new();
            push_canonical_query(&mut out, query.as_bytes());
            assert_eq!(out, expected.as_bytes(), "{query}");
        }
        let mut out = Vec::new();
        push_squeezed(&mut out, b"  a   b\t c ");
        assert_eq!(out, b"a b c");
    }
}
