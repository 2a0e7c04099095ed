//! Who may speak to the platform: programs on this machine, and no web page.
//!
//! A page that a browser on this machine shows can send requests to loopback addresses, and by DNS
//! rebinding read the answers; but then the Host header names the page's own host.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::HeaderMap;

use super::error::ApiError;
use crate::config::Config;

/// Checks the Host header of every request, and the Origin of those that manage.
pub(super) fn check(config: &Config, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
    let mut hosts = headers.get_all(http::header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(ApiError::bad_http("The request has no Host header, or several"));
    };
    let host = host.to_str().unwrap_or("");
    if !allowed(config, host) {
        return Err(ApiError::denied(format!(
            "The Host header {host:?} is neither a loopback name nor one of allowed_hosts"
        )));
    }
    if path.starts_with("/url/") {
        return Ok(());
    }
    match headers.get(http::header::ORIGIN).map(|origin| origin.to_str().unwrap_or("")) {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => {
            Err(ApiError::denied(format!("Requests from the web page {origin:?} are refused")))
        }
        _ => Ok(()),
    }
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
    name.eq_ignore_ascii_case("localhost")
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

    #[test]
    fn web_pages_may_not_manage() {
        let mut headers = HeaderMap::new();
        headers.insert("host", "localhost:9000".parse().unwrap());
        let path = "/2015-03-31/functions";
        assert!(check(&Config::default(), path, &headers).is_ok());
        headers.insert("origin", "http://evil.example".parse().unwrap());
        assert!(check(&Config::default(), path, &headers).is_err());
        assert!(check(&Config::default(), "/url/x/", &headers).is_ok());
        headers.append("host", "localhost".parse().unwrap());
        assert!(check(&Config::default(), "/url/x/", &headers).is_err());
    }
}
