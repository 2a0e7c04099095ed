//! Sockets, their readiness, and what is spoken on them below HTTP.

mod poll_set;
mod poller;
pub mod socket;
pub mod tls;
mod transport;

pub use poller::{Event, Poller};
pub use socket::SocketAddress;
pub use transport::Transport;
