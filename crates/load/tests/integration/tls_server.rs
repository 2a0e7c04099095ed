//! Servers of TLS and HTTP/2 on this machine; their threads end with the test process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server of HTTP/2 without TLS.
pub(crate) struct Http2Server {
    address: SocketAddr,
    pub connections: Arc<AtomicUsize>,
}

impl Http2Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// Answers `hello` after `delay`.
pub(crate) fn http2(delay: Option<Duration>) -> Http2Server {
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    let address = listen(move |stream| {
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            let answer = move |_| async move {
                tokio::time::sleep(delay.unwrap_or_default()).await;
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
            };
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
        }
    });
    Http2Server { address, connections }
}

/// A server with a certificate of its own, which answers with the body that it was sent.
pub(crate) struct TlsServer {
    address: SocketAddr,
    folder: tempfile::TempDir,
}

impl TlsServer {
    pub(crate) fn start(protocols: &[&[u8]]) -> Self {
        let names = vec!["127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), made.cert.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()).into();
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let address = listen(move |stream| {
            let acceptor = acceptor.clone();
            async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    serve_echo(stream).await;
                }
            }
        });
        Self { address, folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    pub(crate) fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }
}

async fn serve_echo(stream: tokio_rustls::server::TlsStream<tokio::net::TcpStream>) {
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let echo = |request: Request<Incoming>| async {
        let body = request.into_body().collect().await?.to_bytes();
        Ok::<_, hyper::Error>(Response::new(Full::new(body)))
    };
    let io = TokioIo::new(stream);
    // A client that goes away is no failure of the server's.
    if is_http2 {
        let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = server.serve_connection(io, service_fn(echo)).await;
    } else {
        let server = hyper::server::conn::http1::Builder::new();
        let _ = server.serve_connection(io, service_fn(echo)).await;
    }
}

/// Every connection to the address that is returned is served in a runtime of its own thread.
fn listen<F>(serve: impl Fn(tokio::net::TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream));
            }
        });
    });
    told.recv().unwrap()
}
