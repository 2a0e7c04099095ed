//! What carries the bytes of a connection.

use std::io;

use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;

use super::tls::Tls;

/// A socket, with or without TLS on it.
pub(crate) struct Transport {
    pub socket: Socket,
    pub tls: Option<Box<Tls>>,
}

impl Transport {
    pub(crate) fn plain(socket: Socket) -> Self {
        Self { socket, tls: None }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => Ok(rustix::net::recv(&self.socket, buffer, RecvFlags::empty())?.0),
            Some(tls) => tls.read(&self.socket, buffer),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            // A peer that is gone is an error, not a signal.
            None => Ok(rustix::net::send(&self.socket, bytes, SendFlags::NOSIGNAL)?),
            Some(tls) => tls.write(&self.socket, bytes),
        }
    }

    /// Sends what was taken before; true when nothing is left.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            None => Ok(true),
            Some(tls) => tls.flush(&self.socket),
        }
    }

    /// Whether a read that brought less than it asked for has emptied the socket, so that whatever
    /// comes later is a new event.
    pub(crate) fn short_read_is_last(&self) -> bool {
        self.tls.is_none()
    }
}
