//! Connections from the worker to what listens inside an instance's network.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, mpsc};

use super::live::Inner;
use super::peer::server_user;
use super::wire::{self, Order};

/// Connects to one instance.
pub(super) struct Connector {
    own_network: bool,
    /// Whose the other end must be, where the instance shares the host's network with others.
    only_user: Option<u32>,
    /// The sockets that the first process has made; who holds the lock has asked for the next.
    sockets: AsyncMutex<mpsc::UnboundedReceiver<Option<OwnedFd>>>,
    made: mpsc::UnboundedSender<Option<OwnedFd>>,
}

impl Connector {
    /// `only_user`: of the instance's processes, if they can be told apart.
    pub(super) fn new(own_network: bool, only_user: Option<u32>) -> Self {
        let (made, sockets) = mpsc::unbounded_channel();
        let only_user = only_user.filter(|_| !own_network);
        Self { own_network, only_user, sockets: AsyncMutex::new(sockets), made }
    }

    /// Takes a socket that the first process has made.
    pub(super) fn take_socket(&self, socket: Option<OwnedFd>) {
        // The receiver is in `self`.
        let _ = self.made.send(socket);
    }

    /// Connects to a port of the instance's loopback interface.
    pub(super) async fn connect(&self, inner: &Inner, port: u16) -> io::Result<TcpStream> {
        let socket = if self.own_network {
            TcpSocket::from_std_stream(self.socket(inner).await?.into())
        } else {
            TcpSocket::new_v4()?
        };
        let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
        // Another's server may have the port on the host's network.
        if let Some(user) = self.only_user
            && server_user(&stream).is_some_and(|peer| peer != user)
        {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another program listens at port {port}"),
            ));
        }
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// A socket in the instance's network, which the first process makes: that needs no rights.
    async fn socket(&self, inner: &Inner) -> io::Result<OwnedFd> {
        let mut sockets = self.sockets.lock().await;
        // Whoever asked for it may have given up.
        while let Ok(socket) = sockets.try_recv() {
            if let Some(socket) = socket {
                return Ok(socket);
            }
        }
        wire::send(inner.control.as_raw_fd(), &Order::Socket, &[])?;
        let made = tokio::select! {
            biased;
            made = sockets.recv() => made,
            _ = inner.gone() => return Err(io::ErrorKind::NotConnected.into()),
        };
        made.flatten().ok_or_else(|| io::Error::other("the instance could make no socket"))
    }
}
