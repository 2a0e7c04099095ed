//! The headers of a stream, checked.

use http::uri::Authority;
use http::{HeaderName, HeaderValue};

use super::fields::Drawable;
use super::sigv4;
use super::template::{self, Encoding, Part, Pieces, Source};
use crate::config::Stream;
use crate::error::LoadError;

/// Headers that the generator sets itself, because they say how the message is delimited.
const RESERVED: [&str; 4] = ["content-length", "transfer-encoding", "connection", "upgrade"];
/// RFC 9113, 8.2.2: what is about one connection of HTTP/1.1.
const ONLY_HTTP1: [&str; 3] = ["keep-alive", "proxy-connection", "http2-settings"];
const USER_AGENT: &str = concat!("uncia/", env!("CARGO_PKG_VERSION"));

pub(super) struct Headers {
    /// In the order of the configuration, then `user-agent`.
    pub list: Vec<(HeaderName, Pieces)>,
    /// The header that carries the invocation id.
    pub invocation: Option<HeaderName>,
}

impl Headers {
    pub(super) fn of(stream: &Stream, fields: &[Drawable]) -> Result<Self, LoadError> {
        let mut list: Vec<(HeaderName, Pieces)> = Vec::new();
        for (name, value) in &stream.headers {
            let checked = header_name(stream, name)?;
            if list.iter().any(|(other, _)| *other == checked) {
                let reason = "it is given twice, for upper and lower case are the same";
                return Err(header_error(stream, name, reason));
            }
            let value = header_value(stream, name, value, fields)?;
            check_for_http2(stream, &checked, &value)?;
            list.push((checked, value));
        }
        if !list.iter().any(|(name, _)| name == "user-agent") {
            let mut value = Pieces::default();
            value.push_bytes(USER_AGENT.as_bytes());
            list.push((HeaderName::from_static("user-agent"), value));
        }
        let invocation = match &stream.invocation_header {
            None => None,
            Some(name) => {
                let checked = header_name(stream, name)?;
                if stream.headers.keys().any(|other| checked.as_str().eq_ignore_ascii_case(other))
                    || checked == "host"
                {
                    return Err(header_error(stream, name, "it is to carry the invocation id"));
                }
                Some(checked)
            }
        };
        Ok(Self { list, invocation })
    }

    pub(super) fn host(&self) -> Option<&Pieces> {
        self.list.iter().find(|(name, _)| name == "host").map(|(_, value)| value)
    }
}

fn header_name(stream: &Stream, name: &str) -> Result<HeaderName, LoadError> {
    let checked = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| header_error(stream, name, "it is not a header's name"))?;
    if RESERVED.contains(&checked.as_str()) {
        return Err(header_error(stream, name, "the generator sets it"));
    }
    if stream.sign.is_some() && sigv4::RESERVED.contains(&checked.as_str()) {
        return Err(header_error(stream, name, "signing sets it, or something else in its place"));
    }
    if stream.http_version.may_be_2() && ONLY_HTTP1.contains(&checked.as_str()) {
        return Err(header_error(stream, name, "HTTP/2 does not allow it"));
    }
    Ok(checked)
}

fn header_value(
    stream: &Stream,
    name: &str,
    value: &str,
    fields: &[Drawable],
) -> Result<Pieces, LoadError> {
    let parts = template::parse(value, fields).map_err(|reason| LoadError::Template {
        stream: stream.function.clone(),
        place: format!("the header {name:?}"),
        reason,
    })?;
    let mut pieces = Pieces::default();
    for part in &parts {
        match part {
            Part::Text(text) => {
                if HeaderValue::from_str(text).is_err() {
                    let reason = "its value has characters that may not be in one";
                    return Err(header_error(stream, name, reason));
                }
                pieces.push_bytes(text.as_bytes());
            }
            Part::Value(source) => {
                check_choices(stream, name, *source, fields)?;
                pieces.push_value(*source, Encoding::AsIs);
            }
        }
    }
    Ok(pieces)
}

/// All that is drawn otherwise may be in a header.
fn check_choices(
    stream: &Stream,
    name: &str,
    source: Source,
    fields: &[Drawable],
) -> Result<(), LoadError> {
    let Source::Field(index) = source else {
        return Ok(());
    };
    match fields[index].find_given(|value| HeaderValue::from_str(value).is_err()) {
        None => Ok(()),
        Some(value) => Err(LoadError::Field {
            stream: stream.function.clone(),
            name: fields[index].name.clone(),
            reason: format!("{value:?} has characters that may not be in the header {name:?}"),
        }),
    }
}

fn check_for_http2(stream: &Stream, name: &HeaderName, value: &Pieces) -> Result<(), LoadError> {
    if !stream.http_version.may_be_2() {
        return Ok(());
    }
    let reason = match (name.as_str(), value.constant()) {
        ("te", value) if value != Some(b"trailers") => {
            "HTTP/2 allows it to say nothing but \"trailers\""
        }
        ("host", None) => "HTTP/2 sends it with the address, where it can't be a template",
        ("host", Some(value)) if Authority::try_from(value).is_err() => {
            "it is not a host that HTTP/2 can send"
        }
        _ => return Ok(()),
    };
    Err(header_error(stream, name.as_str(), reason))
}

fn header_error(stream: &Stream, name: &str, reason: &'static str) -> LoadError {
    LoadError::Header { stream: stream.function.clone(), name: name.to_owned(), reason }
}
