//! Client sockets that never block.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// How far a connection has come.
pub enum Connecting {
    Connected(Socket),
    InProgress(Socket),
}

/// Begins to connect. Nagle's algorithm is off: it would delay the second part of a request.
pub fn connect(address: SocketAddr) -> io::Result<Connecting> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    match socket.connect(&SockAddr::from(address)) {
        Ok(()) => Ok(Connecting::Connected(socket)),
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {
            Ok(Connecting::InProgress(socket))
        }
        Err(error) => Err(error),
    }
}

/// Whether this process, or the machine, has no file descriptor left.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| {
        code == Errno::MFILE.raw_os_error() || code == Errno::NFILE.raw_os_error()
    })
}
