//! Sockets and their readiness.

mod poll_set;
mod poller;
pub mod socket;

pub use poller::{Event, Poller};
