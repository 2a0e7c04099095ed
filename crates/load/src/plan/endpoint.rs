//! Where requests go.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs};

use http::Uri;

use crate::error::LoadError;
use crate::request::Place;

const HTTP_PORT: u16 = 80;

/// A URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// As it goes into the `Host` header.
    pub authority: String,
    host: String,
    port: u16,
    /// Path and query.
    pub path: String,
}

impl Address {
    pub fn parse(stream: &str, url: &str) -> Result<Self, LoadError> {
        let wrong = |reason: String| LoadError::Url {
            stream: stream.to_owned(),
            url: url.to_owned(),
            reason,
        };
        let uri: Uri = url.parse().map_err(|error| wrong(format!("{error}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                return Err(wrong("TLS is not spoken here; use an http:// address".to_owned()));
            }
            Some(other) => return Err(wrong(format!("the scheme {other:?} is not http"))),
            None => return Err(wrong("it must begin with http://".to_owned())),
        }
        let authority = uri.authority().ok_or_else(|| wrong("it has no host".to_owned()))?;
        if authority.as_str().contains('@') {
            return Err(wrong("user and password in a URL are not sent; use a header".to_owned()));
        }
        let host = authority.host();
        if host.is_empty() {
            return Err(wrong("it has no host".to_owned()));
        }
        let port = match (authority.port_u16(), authority.as_str().len() > host.len()) {
            (Some(0), _) => return Err(wrong("nothing listens on port 0".to_owned())),
            (Some(port), _) => port,
            (None, true) => return Err(wrong("its port is not a number up to 65535".to_owned())),
            (None, false) => HTTP_PORT,
        };
        Ok(Self {
            authority: authority.as_str().to_owned(),
            host: host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase(),
            port,
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    /// What requests say of it.
    pub fn place(&self) -> Place<'_> {
        Place { scheme: "http", authority: &self.authority, path: &self.path }
    }
}

/// A host and port, and the pool key of its connections.
#[derive(Debug)]
pub struct Endpoint {
    /// All addresses of the host; a connection tries them in turn.
    pub addresses: Vec<SocketAddr>,
}

/// The endpoints met so far, each resolved once.
#[derive(Default)]
pub struct Endpoints {
    endpoints: Vec<Endpoint>,
    known: HashMap<(String, u16), usize>,
}

impl Endpoints {
    /// The index of the address's endpoint. A dry run resolves nothing.
    pub fn add(
        &mut self,
        stream: &str,
        url: &str,
        address: Address,
        dry_run: bool,
    ) -> Result<usize, LoadError> {
        let key = (address.host, address.port);
        if let Some(&index) = self.known.get(&key) {
            return Ok(index);
        }
        let addresses = if dry_run { Vec::new() } else { resolve(stream, url, &key)? };
        self.endpoints.push(Endpoint { addresses });
        self.known.insert(key, self.endpoints.len() - 1);
        Ok(self.endpoints.len() - 1)
    }

    pub fn into_vec(self) -> Vec<Endpoint> {
        self.endpoints
    }
}

fn resolve(stream: &str, url: &str, key: &(String, u16)) -> Result<Vec<SocketAddr>, LoadError> {
    let failed =
        |source| LoadError::Resolve { stream: stream.to_owned(), url: url.to_owned(), source };
    let found = (key.0.as_str(), key.1).to_socket_addrs().map_err(failed)?;
    let addresses: Vec<SocketAddr> = found.collect();
    if addresses.is_empty() {
        return Err(failed(std::io::Error::other("the name has no address")));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let address = Address::parse("f", "http://127.0.0.1:8080/url/abc/?a=1&b=2").unwrap();
        assert_eq!(address.authority, "127.0.0.1:8080");
        assert_eq!((address.host.as_str(), address.port), ("127.0.0.1", 8080));
        assert_eq!(address.path, "/url/abc/?a=1&b=2");
        let address = Address::parse("f", "http://LocalHost").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("localhost", 80));
        assert_eq!(address.path, "/");
        let address = Address::parse("f", "http://[::1]:9/x").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("::1", 9));
        assert_eq!(address.authority, "[::1]:9");
    }

    #[test]
    fn what_can_t_be_driven_is_refused() {
        for url in [
            "",
            "/",
            "hello",
            "127.0.0.1:80",
            "http://",
            "http:///x",
            "ftp://a/",
            "https://a/",
            "http://a:0/",
            "http://a:99999/",
            "http://a:x/",
            "http://a b/",
            "http://u:p@a/",
        ] {
            let error = Address::parse("f", url).unwrap_err();
            assert!(matches!(error, LoadError::Url { .. }), "{url:?}: {error}");
        }
    }

    #[test]
    fn one_host_and_port_is_one_endpoint() {
        let mut endpoints = Endpoints::default();
        let mut add = |url| {
            let address = Address::parse("f", url).unwrap();
            endpoints.add("f", url, address, false).unwrap()
        };
        assert_eq!(add("http://127.0.0.1:8000/a"), 0);
        assert_eq!(add("http://127.0.0.1:8001/a"), 1);
        assert_eq!(add("http://127.0.0.1:8000/b"), 0);
    }

    #[test]
    fn an_unknown_host_is_an_error_before_the_run() {
        let url = "http://does-not-exist.invalid/";
        let address = Address::parse("f", url).unwrap();
        let error = Endpoints::default().add("f", url, address, false).unwrap_err();
        assert!(matches!(error, LoadError::Resolve { .. }), "{error}");
    }
}
