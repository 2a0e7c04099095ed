//! Where requests go.

use std::collections::HashMap;
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::config::{self, HttpVersion};
use crate::error::LoadError;
use crate::net::{SocketAddress, tls};
use crate::request::Place;

const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// A URL, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// As it goes into the `Host` header.
    pub authority: String,
    pub is_https: bool,
    host: String,
    port: u16,
    /// Path and query.
    pub path: String,
}

impl Address {
    pub(super) fn parse(stream: &str, url: &str) -> Result<Self, LoadError> {
        let wrong = |reason: String| LoadError::Url {
            stream: stream.to_owned(),
            url: url.to_owned(),
            reason,
        };
        let uri: Uri = url.parse().map_err(|error| wrong(format!("{error}")))?;
        let is_https = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(wrong(format!("the scheme {other:?} is not http or https"))),
            None => return Err(wrong("it must begin with http:// or https://".to_owned())),
        };
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
            (None, false) if is_https => HTTPS_PORT,
            (None, false) => HTTP_PORT,
        };
        Ok(Self {
            authority: authority.as_str().to_owned(),
            is_https,
            host: host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase(),
            port,
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    /// What requests say of it.
    pub(super) fn place(&self) -> Place<'_> {
        let scheme = if self.is_https { "https" } else { "http" };
        Place { scheme, authority: &self.authority, path: &self.path }
    }
}

/// Where connections go, and what is spoken on them: connections to one endpoint are alike.
pub(crate) struct Endpoint {
    /// For messages: host and port, or the socket's path.
    pub name: String,
    /// All addresses of the host; a connection tries them in turn.
    pub addresses: Vec<SocketAddress>,
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    pub version: HttpVersion,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {:?} {:?}", self.name, self.addresses, self.version)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    host: String,
    port: u16,
    unix_socket: Option<PathBuf>,
    is_https: bool,
    version: HttpVersion,
}

/// The endpoints met so far, each resolved once.
pub(super) struct Endpoints<'a> {
    tls: &'a config::Tls,
    /// A dry run resolves nothing.
    dry_run: bool,
    endpoints: Vec<Endpoint>,
    known: HashMap<Key, usize>,
}

impl<'a> Endpoints<'a> {
    pub(super) fn new(tls: &'a config::Tls, dry_run: bool) -> Self {
        Self { tls, dry_run, endpoints: Vec::new(), known: HashMap::new() }
    }

    /// The index of the endpoint of a target of `stream`.
    pub(super) fn add(
        &mut self,
        stream: &str,
        target: &config::Target,
        address: &Address,
        version: HttpVersion,
    ) -> Result<usize, LoadError> {
        // Without TLS there is no way to find out what the server speaks.
        let version = match version {
            HttpVersion::Auto if !address.is_https => HttpVersion::Http1,
            other => other,
        };
        let key = Key {
            host: address.host.clone(),
            port: address.port,
            unix_socket: target.unix_socket.clone(),
            is_https: address.is_https,
            version,
        };
        if let Some(&index) = self.known.get(&key) {
            return Ok(index);
        }
        let addresses = match &key.unix_socket {
            Some(path) => vec![SocketAddress::Unix(path.clone())],
            None if self.dry_run => Vec::new(),
            None => resolve(stream, &target.url, &key)?,
        };
        let name = match &key.unix_socket {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", address.host, address.port),
        };
        let tls = if address.is_https && !self.dry_run {
            Some(self.tls(stream, target, address, version)?)
        } else {
            None
        };
        self.endpoints.push(Endpoint { name, addresses, tls, version });
        self.known.insert(key, self.endpoints.len() - 1);
        Ok(self.endpoints.len() - 1)
    }

    fn tls(
        &self,
        stream: &str,
        target: &config::Target,
        address: &Address,
        version: HttpVersion,
    ) -> Result<(Arc<ClientConfig>, ServerName<'static>), LoadError> {
        let protocols: &[&[u8]] = match version {
            HttpVersion::Http1 => &[tls::HTTP1],
            HttpVersion::Http2 => &[tls::HTTP2],
            HttpVersion::Auto => &[tls::HTTP2, tls::HTTP1],
        };
        let server = ServerName::try_from(address.host.clone()).map_err(|_| LoadError::Url {
            stream: stream.to_owned(),
            url: target.url.clone(),
            reason: format!("TLS cannot check the name {:?}", address.host),
        })?;
        Ok((tls::client_config(self.tls, protocols)?, server))
    }

    pub(super) fn into_vec(self) -> Vec<Endpoint> {
        self.endpoints
    }
}

fn resolve(stream: &str, url: &str, key: &Key) -> Result<Vec<SocketAddress>, LoadError> {
    let failed =
        |source| LoadError::Resolve { stream: stream.to_owned(), url: url.to_owned(), source };
    let found = (key.host.as_str(), key.port).to_socket_addrs().map_err(failed)?;
    let addresses: Vec<SocketAddress> = found.map(SocketAddress::Tcp).collect();
    if addresses.is_empty() {
        return Err(failed(std::io::Error::other("the name has no address")));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(url: &str) -> config::Target {
        config::Target { function: "f".to_owned(), url: url.to_owned(), unix_socket: None }
    }

    #[test]
    fn urls_are_taken_apart() {
        let address = Address::parse("f", "http://127.0.0.1:8080/url/abc/?a=1&b=2").unwrap();
        assert_eq!(address.authority, "127.0.0.1:8080");
        assert_eq!((address.host.as_str(), address.port), ("127.0.0.1", 8080));
        assert_eq!(address.path, "/url/abc/?a=1&b=2");
        let address = Address::parse("f", "http://LocalHost").unwrap();
        assert_eq!((address.host.as_str(), address.port), ("localhost", 80));
        assert_eq!(address.path, "/");
        let address = Address::parse("f", "https://a.b/c").unwrap();
        assert_eq!((address.host.as_str(), address.port, address.is_https), ("a.b", 443, true));
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
        let tls = config::Tls { insecure: true, ..config::Tls::default() };
        let mut endpoints = Endpoints::new(&tls, false);
        let mut add = |url, version| {
            let address = Address::parse("f", url).unwrap();
            endpoints.add("f", &target(url), &address, version).unwrap()
        };
        assert_eq!(add("http://127.0.0.1:8000/a", HttpVersion::Http1), 0);
        assert_eq!(add("http://127.0.0.1:8001/a", HttpVersion::Http1), 1);
        assert_eq!(add("http://127.0.0.1:8000/b", HttpVersion::Auto), 0);
        assert_eq!(add("http://127.0.0.1:8000/b", HttpVersion::Http2), 2);
        assert_eq!(add("https://127.0.0.1:8000/b", HttpVersion::Http1), 3);
    }

    #[test]
    fn an_unknown_host_is_an_error_before_the_run() {
        let url = "http://does-not-exist.invalid/";
        let address = Address::parse("f", url).unwrap();
        let tls = config::Tls::default();
        let mut endpoints = Endpoints::new(&tls, false);
        let error = endpoints.add("f", &target(url), &address, HttpVersion::Http1).unwrap_err();
        assert!(matches!(error, LoadError::Resolve { .. }), "{error}");
    }
}
