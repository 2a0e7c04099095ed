//! The load generator against real servers on this machine.

mod answers;
mod chains;
mod closed_loop;
mod connections;
mod open_loop;
mod support;
mod tls_server;
