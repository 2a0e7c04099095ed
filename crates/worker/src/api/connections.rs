//! Connections of clients: accepted, told apart, and answered until they end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};

use super::body::{Connected, HangUp};
use super::{Api, guard};
use crate::dispatch::Connecting;
use crate::instance::{Peer, Visit};
use crate::listen::{Accepted, Arrival, Arrivals, Displaced, HANDSHAKE_TIMEOUT, Listener};

/// A client that has not sent the head of its request by then is not going to.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Most that is read of a connection at once, and the longest head of a request.
const BUFFER_BYTES: usize = 64 * 1024;
/// Connections at a time; others wait to be accepted.
const MAX_CONNECTIONS: usize = 4_096;
/// Of the files that the platform may have open, clients have one part in so many; the others are for
/// instances.
const CLIENTS_PART: usize = 2;
/// Answers in progress may take this long to be written when the platform stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Who is at the other end of a connection; an extension of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Client {
    /// Whoever may use a unix socket: the user that the platform runs as.
    Owner,
    /// Somebody who has come by the platform's address.
    Visitor {
        /// Theirs.
        address: SocketAddr,
        /// Whether nobody in between can read and change what is said.
        is_secure: bool,
    },
}

impl Client {
    /// Whether it speaks TLS with the platform.
    pub(crate) fn is_secure(self) -> bool {
        matches!(self, Self::Visitor { is_secure: true, .. })
    }

    /// The address that a function is told of.
    pub(crate) fn source_ip(self) -> IpAddr {
        match self {
            Self::Owner => Ipv4Addr::LOCALHOST.into(),
            Self::Visitor { address, .. } => address.ip().to_canonical(),
        }
    }
}

/// What is known of a connection before its first request.
struct Connection {
    client: Client,
    visit: Option<Visit>,
    /// Until it has asked for something, if it may have to give way before.
    arrival: Option<Arrival>,
    displaced: Displaced,
    /// Until it has asked for something, if policies are to know.
    connecting: Option<Connecting>,
}

impl Connection {
    fn of(client: Client) -> Self {
        Self { client, visit: None, arrival: None, displaced: Displaced::never(), connecting: None }
    }
}

impl Api {
    /// Serves connections until `stop` is true. Then it accepts no more, and returns when the answers
    /// in progress are written, or after [`FLUSH_TIMEOUT`].
    pub(crate) async fn serve(
        self: Arc<Self>,
        listener: Listener,
        mut stop: watch::Receiver<bool>,
    ) {
        let most = max_connections(uncia_process::descriptors::limit());
        let most = listener.max_connections(most);
        let arrivals = Arrivals::default();
        let mut connections = JoinSet::new();
        loop {
            let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
            tokio::select! {
                biased;
                () = stopped => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < most => {
                    match accepted {
                        Ok(accepted) => {
                            let api = self.clone();
                            connections.spawn(api.converse(accepted, arrivals.clone(), stop.clone()));
                            if self.host.has_host_network() {
                                // Else a function that connects without end has as many accepted at once as
                                // there are, before anybody else's turn.
                                tokio::task::yield_now().await;
                            }
                        }
                        // Out of descriptors, most likely: others are closed in a moment.
                        Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                    }
                }
            }
        }
        drop(listener);
        let ended = async { while connections.join_next().await.is_some() {} };
        // Whoever does not read the answer by then is left alone.
        let _ = timeout(FLUSH_TIMEOUT, ended).await;
    }

    /// Answers the requests of one connection.
    async fn converse(
        self: Arc<Self>,
        accepted: Accepted,
        arrivals: Arrivals,
        stop: watch::Receiver<bool>,
    ) {
        match accepted {
            Accepted::Socket(stream) => {
                self.talk(stream, Connection::of(Client::Owner), stop).await;
            }
            Accepted::Plain(stream, address) => {
                set_nodelay(&stream);
                let client = Client::Visitor { address, is_secure: false };
                let connection = Connection::of(client);
                match self.host.peer(&stream) {
                    Peer::Program => self.talk(stream, connection, stop).await,
                    Peer::Function(visit) => {
                        let stream = visit.paced(stream);
                        let connection = Connection { visit: Some(visit), ..connection };
                        self.talk(stream, connection, stop).await;
                    }
                    Peer::Unwelcome => {}
                }
            }
            Accepted::Tls(stream, acceptor, address) => {
                set_nodelay(&stream);
                let client = Client::Visitor { address, is_secure: true };
                let (arrival, displaced) = arrivals.enter();
                let connection =
                    Connection { arrival: Some(arrival), displaced, ..Connection::of(client) };
                match self.host.peer_from_anywhere(&stream) {
                    Peer::Program => self.agree(stream, acceptor, connection, stop).await,
                    Peer::Function(visit) => {
                        let stream = visit.paced(stream);
                        let connection = Connection { visit: Some(visit), ..connection };
                        self.agree(stream, acceptor, connection, stop).await;
                    }
                    Peer::Unwelcome => {}
                }
            }
        }
    }

    /// Agrees with a client on TLS, and answers its requests.
    async fn agree(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        acceptor: TlsAcceptor,
        mut connection: Connection,
        mut stop: watch::Receiver<bool>,
    ) {
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        let agreed = tokio::select! {
            agreed = timeout(HANDSHAKE_TIMEOUT, self.shake_hands(stream, &acceptor)) => agreed,
            () = connection.displaced.displaced() => return,
            () = stopped => return,
        };
        // Who does not agree, or takes too long, has no words in common with the platform.
        if let Ok(Ok((stream, connecting))) = agreed {
            connection.connecting = connecting;
            self.talk(stream, connection, stop).await;
        }
    }

    /// Agrees on TLS. The first of the client's messages names the host (RFC 6066, 3): if that is a
    /// function's own, the policies learn of it before the rest is said.
    async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        acceptor: &TlsAcceptor,
    ) -> io::Result<(TlsStream<S>, Option<Connecting>)> {
        if !self.dispatcher.reads_connections() {
            return Ok((acceptor.accept(stream).await?, None));
        }
        let begun = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let function = {
            let hello = begun.client_hello();
            let id = hello.server_name().and_then(guard::host_id);
            id.and_then(|id| self.registry.by_url(&id.to_ascii_lowercase()))
        };
        let connecting = function.map(|function| self.dispatcher.connecting(function.id));
        Ok((begun.into_stream(acceptor.config().clone()).await?, connecting))
    }

    async fn talk(
        self: Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Connection,
        mut stop: watch::Receiver<bool>,
    ) {
        let Connection { client, visit, arrival, mut displaced, connecting } = connection;
        let visit = visit.map(Arc::new);
        let first = Mutex::new((arrival, connecting));
        let hang_up = HangUp::default();
        let asked = hang_up.clone();
        // What a connection has become counts as one until it ends.
        let (connected, mut is_over) = mpsc::channel(1);
        let connected = Connected(connected);
        let service = service_fn(move |mut request: http::Request<Incoming>| {
            let (api, visit) = (self.clone(), visit.clone());
            // It has asked, so it stays.
            drop(std::mem::take(&mut *first.lock().unwrap_or_else(PoisonError::into_inner)));
            request.extensions_mut().insert(hang_up.clone());
            request.extensions_mut().insert(connected.clone());
            request.extensions_mut().insert(client);
            async move {
                if let Some(visit) = &visit {
                    visit.charge_request().await;
                }
                let answer = api.reply(request, client, visit.is_some()).await;
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        let mut connection = Box::pin(connection);
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        // A client that breaks off is its own affair.
        tokio::select! {
            _ = connection.as_mut() => {}
            () = asked.asked() => {}
            () = displaced.displaced() => {}
            () = stopped => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.as_mut().await;
            }
        }
        drop(connection);
        while is_over.recv().await.is_some() {}
    }
}

/// Answers are small and are waited for.
fn set_nodelay(stream: &TcpStream) {
    // Without it they come later.
    let _ = stream.set_nodelay(true);
}

/// How many connections are accepted at a time where so many files may be open.
fn max_connections(descriptors: Option<u64>) -> usize {
    let descriptors = descriptors.map_or(usize::MAX, |it| it.try_into().unwrap_or(usize::MAX));
    MAX_CONNECTIONS.min(descriptors / CLIENTS_PART)
}
