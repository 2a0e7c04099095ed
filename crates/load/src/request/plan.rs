//! From a stream's configuration to the requests of its targets.

use std::sync::Arc;

use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::body::Content;
use super::fields::Drawable;
use super::headers::Headers;
use super::http2::Http2Head;
use super::sigv4::{self, Signer};
use super::template::{Answers, Encoding, Pieces, Source};
use super::{
    Ancestor, Http1Head, JOINED_BODY_BYTES, Reference, RequestTemplate, push_header, target,
};
use crate::config::{AwsSigv4, Field, Sign, Stream};
use crate::error::LoadError;

const HOST: HeaderName = http::header::HOST;

/// Where a target's requests go, as they say it themselves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    pub authority: &'a str,
    /// Path and query.
    pub path: &'a str,
}

/// The requests of a stream to each of its targets, and what they have of the answers of
/// `ancestors`; everything about them is checked. `closes`: HTTP/1.1 servers are told that the
/// connection ends with the answer.
pub(crate) fn plan(
    stream: &Stream,
    seed: u64,
    closes: bool,
    places: &[Place],
    ancestors: &[Ancestor],
) -> Result<(Vec<RequestTemplate>, Vec<Reference>), LoadError> {
    let mut answers = Answers { ancestors, references: Vec::new() };
    let parts = Parts::of(stream, seed, closes, &mut answers)?;
    let templates: Vec<_> = places
        .iter()
        .map(|place| parts.of_place(stream, place, &mut answers))
        .collect::<Result<_, _>>()?;
    for (index, field) in parts.fields.iter().enumerate() {
        if !templates.is_empty() && !templates.iter().any(|t| t.used.contains(&index)) {
            return Err(LoadError::Field {
                stream: stream.function.clone(),
                name: field.name.clone(),
                reason: format!("nothing uses it: write {{{{{}}}}} where it belongs", field.name),
            });
        }
    }
    Ok((templates, answers.references))
}

/// What all targets of a stream share.
struct Parts {
    method: Method,
    fields: Arc<[Drawable]>,
    headers: Headers,
    query: Pieces,
    body: Content,
    closes: bool,
}

impl Parts {
    fn of(
        stream: &Stream,
        seed: u64,
        closes: bool,
        answers: &mut Answers,
    ) -> Result<Self, LoadError> {
        let label = stream.label.as_ref().unwrap_or(&stream.function);
        let field = |(name, field): (&String, &Field)| {
            Drawable::new(seed, label, name, field).map_err(|reason| LoadError::Field {
                stream: stream.function.clone(),
                name: name.clone(),
                reason,
            })
        };
        let fields: Arc<[Drawable]> = stream.fields.iter().map(field).collect::<Result<_, _>>()?;
        if let Some(Sign::AwsSigv4(sign)) = &stream.sign {
            check_sign(stream, sign)?;
        }
        Ok(Self {
            method: method(stream)?,
            headers: Headers::of(stream, &fields)?,
            query: target::query(stream, &fields, answers)?,
            body: Content::of(stream, seed, label, &fields, answers)?,
            fields,
            closes,
        })
    }

    fn of_place(
        &self,
        stream: &Stream,
        place: &Place,
        answers: &mut Answers,
    ) -> Result<RequestTemplate, LoadError> {
        let target = target::target(stream, place.path, &self.query, &self.fields, answers)?;
        let headers = self.headers_for(place);
        let mut used = self.used(&target);
        used.sort_unstable();
        used.dedup();
        let sign = stream.sign.as_ref().map(|Sign::AwsSigv4(sign)| sign);
        let signer = sign.map(|sign| self.signer(sign, &target, &headers));
        Ok(RequestTemplate {
            method: self.method.clone(),
            fields: self.fields.clone(),
            used,
            body: self.body.clone(),
            signer,
            http1: self.http1(&target, &headers, sign),
            http2: self.http2(stream, place, &target, &headers, sign)?,
            target,
        })
    }

    /// All headers that the request's framing, a signature and the invocation id do not bring.
    fn headers_for(&self, place: &Place) -> Vec<(HeaderName, Pieces)> {
        let mut headers = self.headers.list.clone();
        if self.headers.host().is_none() {
            let mut host = Pieces::default();
            host.push_bytes(place.authority.as_bytes());
            headers.insert(0, (HOST, host));
        }
        headers
    }

    /// The indices of the fields that requests have.
    fn used(&self, target: &Pieces) -> Vec<usize> {
        let headers = self.headers.list.iter().map(|(_, value)| value);
        let body = match &self.body {
            Content::Constant(_) => None,
            Content::Template(pieces) => Some(pieces),
        };
        headers
            .chain(body)
            .chain([target])
            .flat_map(Pieces::sources)
            .filter_map(|source| match source {
                Source::Field(index) => Some(index),
                Source::Invocation | Source::Number | Source::Answer(_) => None,
            })
            .collect()
    }

    fn signer(&self, sign: &AwsSigv4, target: &Pieces, headers: &[(HeaderName, Pieces)]) -> Signer {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (name.as_str().to_owned(), value.clone())).collect();
        let body = self.body.constant().map(|bytes| &bytes[..]);
        let is_constant = body.is_some()
            && target.constant().is_some()
            && headers.iter().all(|(_, value)| value.constant().is_some());
        Signer::new(sign, self.method.as_str(), &headers, body, is_constant)
    }

    /// The length of a body that is always the same, if it is to be sent.
    fn constant_length(&self) -> Option<usize> {
        let length = self.body.constant()?.len();
        // RFC 9110, 8.6: a length also where a method usually comes with a body and has none.
        let usual = matches!(self.method, Method::POST | Method::PUT | Method::PATCH);
        (length > 0 || usual).then_some(length)
    }

    fn http1(
        &self,
        target: &Pieces,
        headers: &[(HeaderName, Pieces)],
        sign: Option<&AwsSigv4>,
    ) -> Http1Head {
        let (mut start, mut end) = (Pieces::default(), Pieces::default());
        start.push_bytes(format!("{} ", self.method).as_bytes());
        start.push_all(target);
        start.push_bytes(b" HTTP/1.1\r\n");
        for (name, value) in headers {
            start.push_bytes(format!("{name}: ").as_bytes());
            start.push_all(value);
            start.push_bytes(b"\r\n");
        }
        let mut fixed = Vec::new();
        if self.closes {
            push_header(&mut fixed, "connection", b"close");
        }
        if let Some(length) = self.constant_length() {
            push_header(&mut fixed, "content-length", length.to_string().as_bytes());
        }
        if let Some(token) = sign.and_then(|sign| sign.session_token.as_ref()) {
            push_header(&mut fixed, sigv4::TOKEN, token.reveal().as_bytes());
        }
        start.push_bytes(&fixed);
        if let Some(name) = &self.headers.invocation {
            end.push_bytes(format!("{name}: ").as_bytes());
            end.push_value(Source::Invocation, Encoding::AsIs);
            end.push_bytes(b"\r\n");
        }
        end.push_bytes(b"\r\n");
        if let Some(body) = self.body.constant().filter(|body| body.len() <= JOINED_BODY_BYTES) {
            end.push_bytes(body);
        }
        Http1Head { start, end }
    }

    fn http2(
        &self,
        stream: &Stream,
        place: &Place,
        target: &Pieces,
        headers: &[(HeaderName, Pieces)],
        sign: Option<&AwsSigv4>,
    ) -> Result<Http2Head, LoadError> {
        let wrong = |reason: String| LoadError::Url {
            stream: stream.function.clone(),
            url: format!("{}://{}{}", place.scheme, place.authority, place.path),
            reason,
        };
        let of_url: Authority = place.authority.parse().map_err(|e| wrong(format!("{e}")))?;
        // That it can be an address was checked, if HTTP/2 is to be used.
        let host = self.headers.host().and_then(Pieces::constant);
        let authority = host.and_then(|host| Authority::try_from(host).ok()).unwrap_or(of_url);
        let mut head = Http2Head {
            method: self.method.clone(),
            scheme: Scheme::try_from(place.scheme).map_err(|e| wrong(format!("{e}")))?,
            authority,
            target: target.clone(),
            uri: None,
            headers: HeaderMap::new(),
            templates: Vec::new(),
        };
        head.uri = target.constant().map(|target| head.uri(target.to_vec()));
        for (name, value) in headers.iter().filter(|(name, _)| *name != HOST) {
            match value.constant().map(HeaderValue::from_bytes) {
                Some(value) => {
                    // Its pieces were checked one by one.
                    head.headers.insert(name, value.expect("headers are checked"));
                }
                None => head.templates.push((name.clone(), value.clone())),
            }
        }
        if let Some(length) = self.constant_length() {
            head.headers.insert(http::header::CONTENT_LENGTH, length.into());
        }
        if let Some(token) = sign.and_then(|sign| sign.session_token.as_ref()) {
            let value = HeaderValue::from_str(token.reveal());
            let mut value = value.expect("tokens are checked");
            value.set_sensitive(true);
            head.headers.insert(HeaderName::from_static(sigv4::TOKEN), value);
        }
        if let Some(name) = &self.headers.invocation {
            let mut value = Pieces::default();
            value.push_value(Source::Invocation, Encoding::AsIs);
            head.templates.push((name.clone(), value));
        }
        Ok(head)
    }
}

fn method(stream: &Stream) -> Result<Method, LoadError> {
    let Some(name) = &stream.method else {
        return Ok(if stream.body.is_some() { Method::POST } else { Method::GET });
    };
    match Method::from_bytes(name.as_bytes()) {
        // A tunnel is no request to a function.
        Ok(method) if method != Method::CONNECT => Ok(method),
        _ => Err(LoadError::Method { stream: stream.function.clone(), method: name.clone() }),
    }
}

/// The messages show no value: a secret may be in the wrong place.
fn check_sign(stream: &Stream, sign: &AwsSigv4) -> Result<(), LoadError> {
    let wrong = |reason: &str| {
        Err(LoadError::Sign { stream: stream.function.clone(), reason: reason.to_owned() })
    };
    let is_word = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    let is_printable = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
    if !is_word(&sign.region) {
        return wrong("the region must be a name like eu-central-1");
    }
    if !is_word(&sign.service) {
        return wrong("the service must be a name like lambda");
    }
    if sign.access_key_id.is_empty()
        || !sign.access_key_id.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return wrong("the access key id must have letters and digits only");
    }
    if !is_printable(sign.secret_access_key.reveal()) {
        return wrong(
            "the secret access key is empty, or has white space or other such characters",
        );
    }
    if sign.session_token.as_ref().is_some_and(|token| !is_printable(token.reveal())) {
        return wrong("the session token is empty, or has white space or other such characters");
    }
    Ok(())
}
