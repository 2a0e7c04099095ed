//! The path and query of a target.

use super::encode::{canonical, is_path, is_query, is_unreserved, normalise, push_encoded};
use super::fields::Drawable;
use super::template::{self, Answers, Encoding, Part, Pieces};
use crate::config::Stream;
use crate::error::LoadError;

/// Far more than any server takes, and less than what the library for URLs does.
pub(super) const MAX_BYTES: usize = 32 << 10;

/// How a literal part of a URL is written; none if it can't be.
type ToUrl = fn(&str) -> Option<Vec<u8>>;

/// The stream's own part of the query, encoded: `name=value&name=value`, in the order of the names.
pub(super) fn query(
    stream: &Stream,
    fields: &[Drawable],
    answers: &mut Answers,
) -> Result<Pieces, LoadError> {
    let mut pieces = Pieces::default();
    for (name, value) in &stream.query {
        let wrong = |reason: &str| LoadError::Query {
            stream: stream.function.clone(),
            name: name.clone(),
            reason: reason.to_owned(),
        };
        if name.is_empty() {
            return Err(wrong("its name is empty"));
        }
        if name.contains("{{") {
            return Err(wrong("only its value can be a template"));
        }
        let parts = template::parse_with(value, fields, Encoding::Percent, Some(answers)).map_err(
            |reason| LoadError::Template {
                stream: stream.function.clone(),
                place: format!("the query parameter {name:?}"),
                reason,
            },
        )?;
        let mut text = Vec::new();
        if pieces.constant() != Some(&[]) {
            text.push(b'&');
        }
        push_encoded(&mut text, name.as_bytes());
        text.push(b'=');
        pieces.push_bytes(&text);
        for part in &parts {
            match part {
                Part::Text(text) => {
                    let mut encoded = Vec::new();
                    push_encoded(&mut encoded, text.as_bytes());
                    pieces.push_bytes(&encoded);
                }
                Part::Value(source) => pieces.push_value(*source, Encoding::Percent),
            }
        }
    }
    Ok(pieces)
}

/// The request target of a URL with this path and query, and the stream's `query` after it.
///
/// A service that checks a signature must see the very bytes that were signed. So whatever a proxy
/// or the service could write in more than one way is encoded then.
pub(super) fn target(
    stream: &Stream,
    url: &str,
    query: &Pieces,
    fields: &[Drawable],
    answers: &mut Answers,
) -> Result<Pieces, LoadError> {
    let is_signed = stream.sign.is_some();
    let wrong = |reason: String| LoadError::Template {
        stream: stream.function.clone(),
        place: format!("the path and query {url:?}"),
        reason,
    };
    let (path, own_query) = match url.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (url, None),
    };
    let mut pieces = Pieces::default();
    let [path_text, query_text]: [ToUrl; 2] = if is_signed {
        [
            |text| canonical(text, |byte| is_unreserved(byte) || byte == b'/'),
            |text| canonical(text, |byte| is_unreserved(byte) || b"&=".contains(&byte)),
        ]
    } else {
        [|text| normalise(text, is_path), |text| normalise(text, is_query)]
    };
    push(&mut pieces, path, path_text, fields, answers).map_err(wrong)?;
    let own_query = match (own_query, is_signed) {
        (Some(query), true) => Some(unambiguous(query).map_err(|e| wrong(e.to_owned()))?),
        (query, _) => query.map(str::to_owned),
    };
    if own_query.is_some() || query.constant() != Some(&[]) {
        pieces.push_bytes(b"?");
    }
    let own_query = own_query.unwrap_or_default();
    push(&mut pieces, &own_query, query_text, fields, answers).map_err(wrong)?;
    if !own_query.is_empty() && !own_query.ends_with('&') && query.constant() != Some(&[]) {
        pieces.push_bytes(b"&");
    }
    pieces.push_all(query);
    let longest = pieces.max_length(fields);
    if longest > MAX_BYTES {
        return Err(wrong(format!(
            "it could have {longest} bytes with the values drawn, more than {MAX_BYTES}; send them \
             in the body"
        )));
    }
    Ok(pieces)
}

/// A query without empty parameters, and with each `=` within a value encoded.
fn unambiguous(query: &str) -> Result<String, &'static str> {
    if query.contains('+') {
        return Err("services differ in what + in a signed query is: write %20 or %2B");
    }
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let pairs: Vec<_> = pairs
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) => format!("{name}={}", value.replace('=', "%3D")),
            None => pair.to_owned(),
        })
        .collect();
    Ok(pairs.join("&"))
}

/// Appends a part of a URL.
fn push(
    pieces: &mut Pieces,
    text: &str,
    to_url: ToUrl,
    fields: &[Drawable],
    answers: &mut Answers,
) -> Result<(), String> {
    for part in &template::parse_with(text, fields, Encoding::Percent, Some(answers))? {
        match part {
            Part::Text(text) => pieces.push_bytes(
                &to_url(text)
                    .ok_or("a % is not followed by two hexadecimal digits; write %25 for it")?,
            ),
            Part::Value(source) => pieces.push_value(*source, Encoding::Percent),
        }
    }
    Ok(())
}
