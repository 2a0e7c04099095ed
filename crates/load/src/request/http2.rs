//! Requests of HTTP/2.

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri};

use super::sigv4::{AUTHORIZATION, Stamp};
use super::template::{Pieces, Values};

/// The head of a target's requests, but for a signature and the length of a body that is a template.
pub(super) struct Http2Head {
    pub method: Method,
    pub scheme: Scheme,
    pub authority: Authority,
    pub target: Pieces,
    /// Of requests that are all for the same target.
    pub uri: Option<Uri>,
    /// Headers that are always the same.
    pub headers: HeaderMap,
    pub templates: Vec<(HeaderName, Pieces)>,
}

impl Http2Head {
    pub(super) fn render(&self, values: Values) -> Request<()> {
        let mut request = Request::new(());
        *request.version_mut() = http::Version::HTTP_2;
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = match &self.uri {
            Some(uri) => uri.clone(),
            None => self.uri(self.target.render(values)),
        };
        *request.headers_mut() = self.headers.clone();
        for (name, template) in &self.templates {
            let value = header_value(template.render(values));
            request.headers_mut().insert(name.clone(), value);
        }
        request
    }

    /// The address of a path and query.
    pub(super) fn uri(&self, target: Vec<u8>) -> Uri {
        // A plan lets pass neither characters that may not be in a URL nor too many.
        let target = PathAndQuery::from_maybe_shared(bytes::Bytes::from(target));
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(target.expect("targets are checked"));
        Uri::from_parts(parts).expect("all parts are there")
    }
}

fn header_value(bytes: Vec<u8>) -> HeaderValue {
    // A plan lets pass no characters that may not be in a header.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(bytes)).expect("headers are checked")
}

/// Says how long the body is.
pub(super) fn set_length(request: &mut Request<()>, bytes: usize) {
    request.headers_mut().insert(CONTENT_LENGTH, bytes.into());
}

/// Adds the headers of a signature.
pub(super) fn stamp(request: &mut Request<()>, stamp: &Stamp) {
    for (name, value) in stamp.headers() {
        let mut value = header_value(value.to_vec());
        value.set_sensitive(name == AUTHORIZATION);
        request.headers_mut().insert(HeaderName::from_static(name), value);
    }
}
