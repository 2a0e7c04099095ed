//! Which headers pass between a client and an instance's server.
//!
//! The platform takes a message apart and frames it anew: nothing that frames one passes, so that both
//! sides of a message always agree where it ends. The one protocol that a connection may switch to is
//! that of websockets: behind another one, such as `h2c`, requests would pass unseen.

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName, HeaderValue, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, Method};
use http_body_util::Full;
use uncia_code::PREFIX;

use super::exchange::Outgoing;
use crate::instance::Request;
use crate::passage::OutgoingBody;
use crate::sandbox::chain::TOKEN_HEADER;

/// Headers of one connection alone (RFC 9110, 7.6.1), beside those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
];

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The headers that concern more than one connection.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    for value in headers.get_all(CONNECTION) {
        for name in value.to_str().unwrap_or_default().split(',') {
            kept.remove(name.trim());
        }
    }
    for name in HOP_BY_HOP {
        kept.remove(name);
    }
    kept
}

/// The request that the server gets: the client's, or a POST of what was invoked with. None if its body
/// has been sent before, and cannot be again.
pub(super) fn outgoing(request: &Request, port: u16, token: &str) -> Option<Outgoing> {
    let mut outgoing = without_token(request, port)?;
    // Code asks for nothing.
    if request.directions.is_empty()
        && let Ok(token) = HeaderValue::from_str(token)
    {
        outgoing.headers_mut().insert(TOKEN_HEADER, token);
    }
    Some(outgoing)
}

fn without_token(request: &Request, port: u16) -> Option<Outgoing> {
    let passage = request.passage.as_ref();
    let body = match passage.filter(|passage| passage.has_body()) {
        Some(passage) => passage.take_body()?,
        None => OutgoingBody::Whole(Full::new(request.payload.clone())),
    };
    let mut outgoing = Outgoing::new(body);
    let Some(head) = &request.head else {
        *outgoing.method_mut() = Method::POST;
        let headers = outgoing.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(HOST, host(port));
        direct(headers, request);
        return Some(outgoing);
    };
    *outgoing.method_mut() = head.method.clone();
    *outgoing.uri_mut() = head.target.clone();
    let mut headers = end_to_end(&head.headers);
    // The body is sent with its own length or in chunks, and the client is told to go on when it is read.
    headers.remove(CONTENT_LENGTH);
    headers.remove(EXPECT);
    let has_body = !request.payload.is_empty() || passage.is_some_and(|it| it.has_body());
    if !has_body && [Method::POST, Method::PUT, Method::PATCH].contains(&head.method) {
        // A server may refuse a request whose body has no length (RFC 9110, 8.6).
        headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
    }
    if let Some(host) = headers.get(HOST).cloned() {
        headers.insert(FORWARDED_HOST, host);
    } else {
        headers.insert(HOST, host(port));
    }
    if let Ok(client) = HeaderValue::from_str(&head.client.to_string()) {
        headers.append(FORWARDED_FOR, client);
    }
    let scheme = if head.is_secure { "https" } else { "http" };
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(scheme));
    if passage.is_some_and(|passage| passage.is_websocket()) {
        switch(&mut headers);
    }
    direct(&mut headers, request);
    *outgoing.headers_mut() = headers;
    Some(outgoing)
}

/// Adds what is for the platform's own host, which no client can say.
fn direct(headers: &mut HeaderMap, request: &Request) {
    if request.directions.is_empty() {
        return;
    }
    let of_client: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
    for name in of_client {
        headers.remove(name);
    }
    for (name, value) in &request.directions {
        headers.insert(name, value.clone());
    }
}

/// Says that the connection is to become a websocket.
pub(super) fn switch(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// What the client sees of an answer's headers. The length is that of the body; of HEAD, what the server
/// says that GET's would be.
pub(super) fn of_answer(headers: &HeaderMap, is_head: bool) -> HeaderMap {
    let mut kept = end_to_end(headers);
    if !is_head {
        kept.remove(CONTENT_LENGTH);
    }
    kept
}

fn host(port: u16) -> HeaderValue {
    HeaderValue::try_from(format!("127.0.0.1:{port}"))
        .unwrap_or_else(|_| HeaderValue::from_static("127.0.0.1"))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use super::*;
    use crate::instance::HttpHead;

    fn sent(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let mut map = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            map.append(name, value);
        });
        let head = HttpHead {
            method: Method::PUT,
            target: "/a%2Fb?x=1".parse().unwrap(),
            headers: map,
            ..plain()
        };
        let request = Request { head: Some(Arc::new(head)), ..Request::default() };
        let outgoing = outgoing(&request, 8080, "token").unwrap();
        assert_eq!(
            (outgoing.method(), outgoing.uri().to_string().as_str()),
            (&Method::PUT, "/a%2Fb?x=1")
        );
        outgoing.headers().clone()
    }

    fn plain() -> HttpHead {
        HttpHead {
            client: Ipv4Addr::LOCALHOST.into(),
            is_secure: false,
            method: Method::GET,
            target: "/".parse().unwrap(),
            headers: HeaderMap::new(),
        }
    }

    #[test]
    fn a_server_learns_where_a_request_comes_from() {
        let client = Ipv4Addr::new(10, 0, 0, 7).into();
        let head = HttpHead { client, is_secure: true, ..plain() };
        let request = Request { head: Some(Arc::new(head)), ..Request::default() };
        let headers = outgoing(&request, 8080, "").unwrap().headers().clone();
        assert_eq!(headers["x-forwarded-for"], "10.0.0.7");
        assert_eq!(headers["x-forwarded-proto"], "https");
    }

    #[test]
    fn what_frames_a_message_does_not_pass() {
        let headers = sent(&[
            ("host", "a.example"),
            ("connection", "close, X-Secret"),
            ("connection", "keep-alive"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("content-length", "7"),
            ("transfer-encoding", "chunked"),
            ("te", "trailers"),
            ("trailer", "x"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("x-own", "a"),
            ("x-own", "b"),
        ]);
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let passed = [
            "content-length",
            "host",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-own",
            "x-uncia-token",
        ];
        assert_eq!(names, passed);
        // The platform's own: the request that it makes of this one has no body.
        assert_eq!(headers["content-length"], "0");
        assert_eq!(headers.get_all("x-own").iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (&headers["host"], &headers["x-forwarded-host"]),
            (&HeaderValue::from_static("a.example"), &HeaderValue::from_static("a.example"))
        );
    }

    #[test]
    fn no_client_directs_the_platforms_host() {
        let mut headers = HeaderMap::new();
        headers.insert("uncia-order", HeaderValue::from_static("compile"));
        headers.insert("uncia-function", HeaderValue::from_static("another"));
        let head = HttpHead { headers, ..plain() };
        let mut request = Request { head: Some(Arc::new(head)), ..Request::default() };
        let sent = |request: &Request| outgoing(request, 8080, "").unwrap().headers().clone();
        // To a server of the function's own they are headers like others.
        assert_eq!(sent(&request)["uncia-order"], "compile");
        request.directions.insert("uncia-function", HeaderValue::from_static("this"));
        let headers = sent(&request);
        assert_eq!(headers["uncia-function"], "this");
        assert!(!headers.contains_key("uncia-order"));
    }

    #[test]
    fn who_forwarded_before_stays() {
        let headers = sent(&[("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "https")]);
        let chain: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        assert_eq!(chain, ["10.0.0.1", "127.0.0.1"]);
        assert_eq!(headers["host"], "127.0.0.1:8080");
    }
}
