//! Client sockets that never block.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// What a socket connects to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => path.display().fmt(formatter),
        }
    }
}

/// How far a connection has come.
pub(crate) enum Connecting {
    Connected(Socket),
    InProgress(Socket),
}

/// Begins to connect. Nagle's algorithm is off: it would delay the second part of a request.
pub(crate) fn connect(address: &SocketAddress) -> io::Result<Connecting> {
    let (socket, target) = match address {
        SocketAddress::Tcp(address) => {
            let domain = Domain::for_address(*address);
            let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_tcp_nodelay(true)?;
            (socket, SockAddr::from(*address))
        }
        SocketAddress::Unix(path) => {
            (Socket::new(Domain::UNIX, Type::STREAM, None)?, SockAddr::unix(path)?)
        }
    };
    socket.set_nonblocking(true)?;
    match socket.connect(&target) {
        Ok(()) => Ok(Connecting::Connected(socket)),
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {
            Ok(Connecting::InProgress(socket))
        }
        // Of a unix socket, which has no handshake that could be in progress.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            "the listener's queue of connections is full",
        )),
        Err(error) => Err(error),
    }
}

/// Whether this process, or the machine, has no file descriptor left.
pub(crate) fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| {
        code == Errno::MFILE.raw_os_error() || code == Errno::NFILE.raw_os_error()
    })
}
