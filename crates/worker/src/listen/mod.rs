//! Where requests come from: a loopback address, an address of this machine over TLS, and unix sockets.

mod arrivals;
mod socket;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::access::{Access, MIN_SECRET};

pub(crate) use arrivals::{Arrival, Arrivals, Displaced, HANDSHAKE_TIMEOUT};
pub use socket::SocketError;
pub(crate) use socket::SocketFile;
pub use tls::{Tls, TlsError};

/// Connections to one unix socket at a time; others wait to be accepted.
pub(crate) const MAX_SOCKET_CONNECTIONS: usize = 256;

/// Where a platform listens, and who is answered there.
#[derive(Debug, Clone)]
pub struct Listen {
    /// The address and port; port 0 takes a free one.
    pub address: SocketAddr,
    /// Files of unix sockets, which their owner alone can use.
    pub sockets: Vec<PathBuf>,
    /// What is said at the address; without it, HTTP as it is.
    pub tls: Option<Tls>,
    /// The credentials by which signatures and tokens are believed.
    pub access: Access,
    /// Whether whoever comes by the address must have them. Beyond loopback it always must.
    pub is_guarded: bool,
}

/// Why a platform may not listen as it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum ListenError {
    #[error(
        "{0} is not a loopback address, and the platform runs whatever it is given: beyond loopback it \
         listens only over TLS; add --tls-cert FILE and --tls-key FILE, or listen on 127.0.0.1"
    )]
    Plain(SocketAddr),
    #[error(
        "{0} needs credentials, by which those are known who may use the platform: add --credentials FILE, \
         or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or UNCIA_TOKEN"
    )]
    Open(SocketAddr),
    #[error(
        "a secret in the environment has fewer than {MIN_SECRET} characters and can be guessed: choose a longer \
         AWS_SECRET_ACCESS_KEY or UNCIA_TOKEN"
    )]
    Weak,
}

impl Listen {
    /// A loopback address, where every program of this machine is answered.
    pub fn on_loopback(address: SocketAddr) -> Self {
        let (sockets, tls, access) = (Vec::new(), None, Access::default());
        Self { address, sockets, tls, access, is_guarded: false }
    }

    /// Whether whoever comes by the address must have credentials.
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_guarded || !self.address.ip().is_loopback()
    }

    /// Checks that only those can use the platform who may.
    pub(crate) fn check(&self) -> Result<(), ListenError> {
        if self.tls.is_none() && !self.address.ip().is_loopback() {
            return Err(ListenError::Plain(self.address));
        }
        match self.is_guarded() {
            true if self.access.is_empty() => Err(ListenError::Open(self.address)),
            true if self.access.is_weak() => Err(ListenError::Weak),
            _ => Ok(()),
        }
    }
}

/// One listener, and what is said there.
pub(crate) enum Listener {
    Plain(TcpListener),
    Tls(TcpListener, TlsAcceptor),
    Socket(UnixListener),
}

/// A connection that was accepted.
pub(crate) enum Accepted {
    Plain(TcpStream, SocketAddr),
    Tls(TcpStream, TlsAcceptor, SocketAddr),
    Socket(UnixStream),
}

impl Listener {
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Plain(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Plain(stream, peer))
            }
            Self::Tls(listener, acceptor) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Tls(stream, acceptor.clone(), peer))
            }
            Self::Socket(listener) => Ok(Accepted::Socket(listener.accept().await?.0)),
        }
    }

    /// How many connections it has at a time, of as many as clients may have.
    pub(crate) fn max_connections(&self, most: usize) -> usize {
        match self {
            Self::Plain(_) | Self::Tls(..) => most,
            Self::Socket(_) => most.min(MAX_SOCKET_CONNECTIONS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(address: &str, access: Access, is_guarded: bool) -> Result<(), ListenError> {
        let listen = Listen::on_loopback(address.parse().unwrap());
        Listen { access, is_guarded, ..listen }.check()
    }

    fn token(text: &str) -> Access {
        Access::of_environment(|name| (name == "UNCIA_TOKEN").then(|| text.to_owned()))
    }

    #[test]
    fn nobody_listens_beyond_loopback_without_tls_and_credentials() {
        for address in ["0.0.0.0:0", "192.0.2.1:80", "[::]:0", "[::ffff:127.0.0.1]:0"] {
            let refused = with(address, token("0123456789abcdef"), false).unwrap_err();
            assert_eq!(refused, ListenError::Plain(address.parse().unwrap()));
        }
        for address in ["127.0.0.1:0", "127.9.9.9:1", "[::1]:0"] {
            assert_eq!(with(address, Access::default(), false), Ok(()));
            assert_eq!(with(address, token("short"), false), Ok(()), "nobody is asked for it");
            let refused = with(address, Access::default(), true).unwrap_err();
            assert!(refused.to_string().contains("--credentials FILE"), "{refused}");
            assert_eq!(with(address, token("short"), true), Err(ListenError::Weak));
            assert_eq!(with(address, token("0123456789abcdef"), true), Ok(()));
        }
    }
}
