//! Sockets, their readiness, and what is spoken on them below HTTP.

mod poll_set;
mod poller;
pub(crate) mod socket;
pub(crate) mod tls;
mod transport;

pub(crate) use poller::{Event, Poller};
pub(crate) use socket::SocketAddress;
pub(crate) use transport::Transport;
