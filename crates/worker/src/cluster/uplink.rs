//! How a worker reaches its controller.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONNECTION, HOST, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use uncia_oci::Layer;

use super::wire::{INTRODUCTION_HEADER, Introduction, JOIN_PATH, PROTOCOL};
use crate::passage::Stream;

/// A controller that does not take a connection by then is not going to.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A controller that has not answered by then, or sends no more of a package, is not going to.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// What a controller says of a refusal must be there by then.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(10);
/// The most that is read of what a controller says of a refusal.
const MAX_REFUSAL_BYTES: usize = 64 * 1024;

/// Why a worker cannot join.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum JoinError {
    #[error("the controller's address must be http://HOST:PORT or https://HOST:PORT, not {0}")]
    Address(String),
    #[error(
        "{0} is beyond this machine: name the controller by https://, so that nobody in between reads or changes \
         what is said"
    )]
    Unprotected(String),
    #[error("{0}")]
    Name(String),
    #[error("the credentials are not usable: {0}")]
    Credentials(String),
    #[error("no certificates of authorities can be read: {0}; name a file with SSL_CERT_FILE")]
    Authorities(String),
    #[error("the controller at {url} cannot be reached: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("the controller at {url} refuses the worker: {reason}")]
    Refused { url: String, reason: String },
    #[error(transparent)]
    Lock(#[from] crate::store::LockError),
    #[error(transparent)]
    Host(#[from] crate::instance::HostError),
    #[error("the state folder cannot be used: {0}")]
    State(#[from] std::io::Error),
}

/// A controller by its address.
#[derive(Clone)]
pub(super) struct Uplink {
    url: String,
    authority: String,
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    token: Option<HeaderValue>,
}

impl fmt::Debug for Uplink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Uplink").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Uplink {
    /// The controller at an address, with the token that lets in there.
    pub(super) fn new(url: &str, token: Option<&str>) -> Result<Self, JoinError> {
        let malformed = || JoinError::Address(url.to_owned());
        let parsed: Uri = url.parse().map_err(|_| malformed())?;
        let (Some(scheme), Some(host)) = (parsed.scheme_str(), parsed.host()) else {
            return Err(malformed());
        };
        if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() {
            return Err(malformed());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (tls, port) = match scheme {
            "http" if !is_loopback(&host) => return Err(JoinError::Unprotected(url.to_owned())),
            "http" => (None, 80),
            "https" => (Some(Arc::new(client_config()?)), 443),
            _ => return Err(malformed()),
        };
        let token = token.map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| JoinError::Credentials("the token has odd characters".to_owned()))?;
            value.set_sensitive(true);
            Ok::<_, JoinError>(value)
        });
        Ok(Self {
            url: url.trim_end_matches('/').to_owned(),
            authority: parsed.authority().map_or_else(String::new, ToString::to_string),
            host,
            port: parsed.port_u16().unwrap_or(port),
            tls,
            token: token.transpose()?,
        })
    }

    fn unreachable(&self, reason: impl fmt::Display) -> JoinError {
        JoinError::Unreachable { url: self.url.clone(), reason: reason.to_string() }
    }

    /// A connection, with or without TLS.
    async fn connect(&self) -> Result<Pin<Box<dyn Stream>>, JoinError> {
        let connect = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            // Without it requests come later.
            let _ = stream.set_nodelay(true);
            let Some(tls) = &self.tls else {
                return Ok::<Pin<Box<dyn Stream>>, std::io::Error>(Box::pin(stream));
            };
            let name = ServerName::try_from(self.host.clone()).map_err(std::io::Error::other)?;
            let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
            Ok(Box::pin(stream))
        };
        match timeout(CONNECT_TIMEOUT, connect).await {
            Ok(connected) => connected.map_err(|error| self.unreachable(error)),
            Err(_) => {
                Err(self.unreachable(format!("no answer for {} s", CONNECT_TIMEOUT.as_secs())))
            }
        }
    }

    /// Sends a request on a connection of its own.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, JoinError> {
        let io = TokioIo::new(self.connect().await?);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(|error| self.unreachable(error))?;
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|error| self.unreachable(error))?;
        *request.headers_mut() = headers;
        if let Ok(host) = HeaderValue::from_str(&self.authority) {
            request.headers_mut().insert(HOST, host);
        }
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        sender.send_request(request).await.map_err(|error| self.unreachable(error))
    }

    /// Joins: the connection on which the controller asks from now on.
    pub(super) async fn join(&self, about: &Introduction) -> Result<Upgraded, JoinError> {
        let mut headers = HeaderMap::new();
        let about = serde_json::to_string(about).unwrap_or_default();
        if let Ok(about) = HeaderValue::from_str(&about) {
            headers.insert(INTRODUCTION_HEADER, about);
        }
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static(PROTOCOL));
        let answer =
            timeout(ANSWER_TIMEOUT, self.send(Method::GET, JOIN_PATH, headers, Bytes::new()));
        let answer = answer.await.map_err(|_| self.unreachable("it does not answer"))??;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            return hyper::upgrade::on(answer).await.map_err(|error| self.unreachable(error));
        }
        let reason = reason_of(answer).await;
        Err(JoinError::Refused { url: self.url.clone(), reason })
    }

    /// The archive of an image's layer.
    pub(super) async fn layer(&self, layer: &Layer) -> Result<Response<Incoming>, String> {
        let (layer, blob) = (layer.diff_id.hex(), layer.blob.digest.hex());
        self.fetch(&format!("/uncia/v1/layers/{layer}/{blob}"), &format!("layer {blob}")).await
    }

    /// Asks for something that the controller keeps.
    async fn fetch(&self, path: &str, what: &str) -> Result<Response<Incoming>, String> {
        let answer = self.send(Method::GET, path, HeaderMap::new(), Bytes::new());
        let answer = timeout(ANSWER_TIMEOUT, answer).await;
        let answer = answer.map_err(|_| format!("the controller does not send the {what}"))?;
        let answer = answer.map_err(|error| error.to_string())?;
        let status = answer.status();
        if status != StatusCode::OK {
            let reason = reason_of(answer).await;
            return Err(format!("the controller does not send the {what}: {reason}"));
        }
        Ok(answer)
    }

    /// A package by its hash.
    pub(super) async fn package(&self, sha256: &str) -> Result<Bytes, String> {
        let path = format!("/uncia/v1/code/{sha256}");
        let silent = |_| format!("the controller does not send the package {sha256}");
        let answer = self.fetch(&path, &format!("package {sha256}")).await?;
        let (mut body, mut bytes) = (answer.into_body(), BytesMut::new());
        while let Some(frame) = timeout(ANSWER_TIMEOUT, body.frame()).await.map_err(silent)? {
            let frame = frame.map_err(|error| error.to_string())?;
            if let Ok(data) = frame.into_data() {
                bytes.extend_from_slice(&data);
            }
        }
        Ok(bytes.freeze())
    }
}

/// Why the controller has not done what it was asked for.
async fn reason_of(answer: Response<Incoming>) -> String {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_REFUSAL_BYTES).collect();
    let body = timeout(REFUSAL_TIMEOUT, body).await.ok().and_then(Result::ok);
    let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&body)
        .ok()
        .and_then(|error| {
            let message = error.get("message").or_else(|| error.get("Message"))?;
            message.as_str().map(str::to_owned)
        })
        .unwrap_or_else(|| format!("it answers with HTTP status {status}"))
}

/// Whether a host's name or address is this machine's own.
fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// TLS with the system's authorities, or those in the file that `SSL_CERT_FILE` names.
fn client_config() -> Result<ClientConfig, JoinError> {
    let loaded = rustls_native_certs::load_native_certs();
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(loaded.certs);
    if roots.is_empty() {
        let errors: Vec<_> = loaded.errors.iter().map(ToString::to_string).collect();
        return Err(JoinError::Authorities(errors.join("; ")));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| JoinError::Authorities(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// The token in a file of credentials, in the form that `--credentials` takes.
pub(super) fn token_of(path: &Path) -> Result<Option<String>, JoinError> {
    let unusable = |reason: String| JoinError::Credentials(reason);
    // Its form, and who may read it, are checked where all credentials are.
    crate::access::Access::of_file(path).map_err(|error| unusable(error.to_string()))?;
    let text = std::fs::read_to_string(path)
        .map_err(|error| unusable(format!("{}: {error}", path.display())))?;
    let token = text.lines().find_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "uncia_token").then(|| value.trim().to_owned())
    });
    if token.is_none() {
        return Err(unusable(format!(
            "{} has no uncia_token, by which a worker is let in",
            path.display()
        )));
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_say_how_the_controller_is_reached() {
        let sentence = |url: &str| Uplink::new(url, None).unwrap_err().to_string();
        for fine in ["http://127.0.0.1:9001", "http://localhost:9001/", "http://[::1]:9001"] {
            Uplink::new(fine, None).unwrap();
        }
        for odd in ["9001", "ftp://127.0.0.1", "http://127.0.0.1/x", "http://127.0.0.1?x", ""] {
            assert!(sentence(odd).contains("must be http://HOST:PORT"), "{odd}");
        }
        assert!(sentence("http://10.0.0.1:9001").contains("https://"));
    }
}
