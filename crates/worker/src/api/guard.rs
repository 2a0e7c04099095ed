//! Who may speak to the platform: programs, and of web pages its own alone.
//!
//! A page that a browser on this machine shows can send requests to loopback addresses, and by DNS
//! rebinding read the answers; but then the Host header names the page's own host. Where TLS is spoken,
//! the certificate is for no such host. A browser that knows the platform's token sends it along with
//! what any page asks for; but it says whose page that is.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};

use super::connections::Client;
use super::error::ApiError;
use crate::access::SentPath;
use crate::config::Config;

/// Checks the Host header of every request, and of those that manage or look on from where they come.
pub(super) fn check(config: &Config, client: Client, head: &Parts) -> Result<(), ApiError> {
    let (path, headers) = (head.uri.path(), &head.headers);
    let mut hosts = headers.get_all(http::header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(ApiError::bad_http("The request has no Host header, or several"));
    };
    let host = host.to_str().unwrap_or("");
    let (is_plain, is_secure) = match client {
        Client::Owner => (false, false),
        Client::Visitor { is_secure, .. } => (!is_secure, is_secure),
    };
    if is_plain && !allowed(config, host) {
        return Err(ApiError::denied(format!(
            "The Host header {host:?} is neither a loopback name nor one of allowed_hosts"
        )));
    }
    if path.starts_with("/url/") {
        return Ok(());
    }
    let scheme = if is_secure { "https://" } else { "http://" };
    match headers.get(http::header::ORIGIN).map(|origin| origin.to_str().unwrap_or("")) {
        Some(origin) if origin.strip_prefix(scheme) != Some(host) => {
            return Err(ApiError::denied(format!(
                "Requests from the web page {origin:?} are refused"
            )));
        }
        _ => {}
    }
    if is_of_another_page(head) {
        return Err(ApiError::denied("The platform is for its own page, and for no other's"));
    }
    Ok(())
}

/// Whether a browser says that a page asks which is not the platform's own (Fetch Metadata): another
/// site's, or, as far as managing goes, that of a function with the same address.
fn is_of_another_page(head: &Parts) -> bool {
    let (path, headers) = (head.uri.path(), &head.headers);
    let says = |name: &str, word: &[u8]| {
        headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(word))
    };
    if !headers.contains_key("sec-fetch-site") || says("sec-fetch-site", b"none") {
        return false;
    }
    let is_own = says("sec-fetch-site", b"same-origin")
        && is_of_the_page(path)
        && head.method == Method::GET;
    let is_link = matches!(path, "/uncia" | "/uncia/")
        && says("sec-fetch-mode", b"navigate")
        && says("sec-fetch-dest", b"document");
    !is_own && !is_link
}

/// Whether a path is one that people open in a browser, or that the page asks for.
pub(super) fn is_of_the_page(path: &str) -> bool {
    path == "/metrics" || path == "/uncia" || path.starts_with("/uncia/")
}

/// The part of a function's URL that names the function.
pub(super) fn url_id(path: &str) -> Option<&str> {
    path.strip_prefix("/url/")?.split('/').next()
}

/// What stands behind a function's name in the name of its own host: `ID.lambda-url.localhost`, and over
/// TLS any other domain for which there is a certificate.
const HOST_LABEL: &str = "lambda-url";

/// The part of a host's name that names the function, if it is the host of one.
pub(super) fn host_id(host: &str) -> Option<&str> {
    let (id, rest) = host.split_once('.')?;
    let (label, domain) = rest.split_once('.')?;
    (label.eq_ignore_ascii_case(HOST_LABEL) && !domain.is_empty()).then_some(id)
}

/// Gives a request to a function's own host the path that it has on the platform's.
pub(super) fn direct_by_host(head: &mut Parts) {
    let host = head.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    let Some(id) = host.and_then(|host| host_id(without_port(host))) else { return };
    let sent = head.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let slash = if sent.starts_with('/') { "" } else { "/" };
    let path = format!("/url/{}{slash}{sent}", id.to_ascii_lowercase());
    let sent = SentPath(head.uri.path().to_owned());
    // What no path can be, no function has.
    head.uri = path.parse().unwrap_or_else(|_| Uri::from_static("/url/"));
    head.extensions.insert(sent);
}

/// Whether a request came to a function's own host.
pub(super) fn is_by_host(head: &Parts) -> bool {
    head.extensions.get::<SentPath>().is_some()
}

/// Checks that nobody in between can have seen another end of the request than this server. A request
/// with a length beside its chunks goes by the chunks, and is the connection's last (RFC 9112, 6.1).
pub(super) fn check_framing(headers: &HeaderMap) -> Result<(), ApiError> {
    let mut codings = headers.get_all(http::header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(ApiError::bad_http("The only Transfer-Encoding that is taken is chunked")),
    }
}

fn allowed(config: &Config, host: &str) -> bool {
    let name = without_port(host);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    // Names that end so are of this machine (RFC 6761, 6.3).
    let of_function = host_id(name).and_then(|id| name.get(id.len() + HOST_LABEL.len() + 2..));
    of_function.unwrap_or(name).eq_ignore_ascii_case("localhost")
        || bare.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || (name.starts_with('[') && bare.parse::<Ipv6Addr>().is_ok_and(|a| a.is_loopback()))
        || config.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon)
            if !host[colon..].contains(']')
                && host[colon + 1..].bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            &host[..colon]
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;

    #[test]
    fn only_loopback_names_and_configured_ones() {
        let config = Config { allowed_hosts: vec!["build.lan".to_owned()], ..Config::default() };
        for host in
            ["localhost", "LOCALHOST:80", "127.0.0.1:9", "127.9.9.9", "[::1]:8080", "build.lan:1"]
        {
            assert!(allowed(&config, host), "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.nip.io", "[::2]"]
        {
            assert!(!allowed(&config, host), "{host}");
        }
    }

    const LOOPBACK: Client = Client::Visitor {
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9),
        is_secure: false,
    };
    const SECURE: Client = Client::Visitor {
        address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9),
        is_secure: true,
    };
    const MANAGE: &str = "/2015-03-31/functions";

    fn is_answered(client: Client, path: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = http::Request::get(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        check(&Config::default(), client, &head).is_ok()
    }

    #[test]
    fn a_host_of_its_own_is_one_function_alone() {
        for (host, sent, path) in [
            ("abc.lambda-url.localhost:9000", "/", "/url/abc/"),
            ("ABC.Lambda-URL.example.com", "/x/y?q=1", "/url/abc/x/y?q=1"),
            ("abc.lambda-url.localhost", "/2015-03-31/functions", "/url/abc/2015-03-31/functions"),
            ("abc.lambda-url.localhost", "/url/def/", "/url/abc/url/def/"),
            ("abc.lambda-url.localhost", "*", "/url/abc/*"),
            ("a c.lambda-url.localhost", "/uncia/", "/url/"),
            ("localhost:9000", "/uncia/", "/uncia/"),
            ("lambda-url.localhost", "/uncia/", "/uncia/"),
            ("abc.lambda-url.", "/uncia/", "/uncia/"),
        ] {
            let request = http::Request::get(sent).header("host", host).body(()).unwrap();
            let (mut head, ()) = request.into_parts();
            direct_by_host(&mut head);
            assert_eq!(head.uri.to_string(), path, "{host} {sent}");
        }
        let config = Config::default();
        assert!(allowed(&config, "abc.lambda-url.localhost:80"));
        for host in
            ["abc.lambda-url.localhost.evil.example", "abc.localhost", "lambda-url.localhost"]
        {
            assert!(!allowed(&config, host), "{host}");
        }
    }

    #[test]
    fn web_pages_may_not_manage() {
        let host = ("host", "localhost:9000");
        let evil = ("origin", "http://evil.example");
        assert!(is_answered(LOOPBACK, MANAGE, &[host]));
        assert!(!is_answered(LOOPBACK, MANAGE, &[host, evil]));
        assert!(is_answered(LOOPBACK, "/url/x/", &[host, evil]));
        assert!(!is_answered(LOOPBACK, "/url/x/", &[host, host]));
        assert!(!is_answered(LOOPBACK, "/url/x/", &[]));
        let origin = ("origin", "http://localhost:9000");
        assert!(is_answered(LOOPBACK, MANAGE, &[host, origin]));
        assert!(!is_answered(SECURE, MANAGE, &[host, origin]));
        assert!(is_answered(SECURE, MANAGE, &[host, ("origin", "https://localhost:9000")]));
    }

    #[test]
    fn the_host_matters_where_nothing_else_says_it() {
        let elsewhere = ("host", "build.lan");
        assert!(!is_answered(LOOPBACK, MANAGE, &[elsewhere]));
        assert!(is_answered(SECURE, MANAGE, &[elsewhere]));
        assert!(is_answered(Client::Owner, MANAGE, &[elsewhere]));
    }

    #[test]
    fn a_page_of_another_site_gets_nothing_but_a_link_to_the_page() {
        let host = ("host", "localhost");
        let live = "/uncia/v1/live";
        for (path, site, mode, dest, expected) in [
            (live, "same-origin", "cors", "empty", true),
            (live, "cross-site", "no-cors", "image", false),
            (live, "same-site", "no-cors", "image", false),
            ("/uncia/v1/viewers", "cross-site", "no-cors", "image", false),
            ("/uncia/", "cross-site", "navigate", "document", true),
            ("/uncia/", "cross-site", "navigate", "iframe", false),
            ("/uncia/", "cross-site", "no-cors", "image", false),
            ("/metrics", "none", "navigate", "document", true),
            ("/metrics", "cross-site", "navigate", "document", false),
            (MANAGE, "none", "navigate", "document", true),
            (MANAGE, "same-origin", "cors", "empty", false),
            ("/url/x/", "cross-site", "cors", "empty", true),
        ] {
            let fetch =
                [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            let headers = [&[host][..], &fetch].concat();
            assert_eq!(is_answered(LOOPBACK, path, &headers), expected, "{path} {site} {mode}");
        }
        let trigger = http::Request::put("/uncia/v1/triggers/t").header("host", "localhost");
        let (head, ()) =
            trigger.header("sec-fetch-site", "same-origin").body(()).unwrap().into_parts();
        assert!(check(&Config::default(), LOOPBACK, &head).is_err(), "pages look on");
    }
}
