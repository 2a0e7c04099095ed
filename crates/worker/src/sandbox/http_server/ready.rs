//! Waiting until an instance's server listens.

use std::fs;
use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Server;
use crate::clock::Moment;
use crate::instance::{InstanceSpec, Network, StartError};
use crate::sandbox::environment::{CHAIN_PORT, RUNTIME_API_PORT};
use crate::sandbox::live::Inner;
use crate::services;

/// Between two attempts to connect: at first, and at most. It grows by a tenth each time, and so is the
/// time at which the server listens known within a tenth.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// `TCP_LISTEN` of `net/tcp_states.h`, as `/proc/net/tcp` writes it.
const LISTENS: &str = "0A";

impl Server {
    /// Connects until the server accepts, or the start has taken too long; returns since when it listens.
    pub(in crate::sandbox) async fn ready(
        &self,
        spec: &InstanceSpec,
        inner: &Inner,
    ) -> Result<Moment, StartError> {
        let deadline = Instant::now() + spec.init_timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            // The connection is closed again: a server with one thread would wait for its request.
            match self.connect(inner).await {
                Ok(_) => return Ok(Moment::now()),
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    return Err(not_listening(error.to_string()));
                }
                Err(_) if Instant::now() >= deadline => {
                    return Err(not_listening(self.silence(spec, inner)));
                }
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 11 / 10).min(LONGEST_PAUSE);
        }
    }

    /// Whether somebody listens at its port; None if that cannot be seen.
    pub(super) fn listens(&self, inner: &Inner) -> Option<bool> {
        let tables = tables(inner.pid);
        let is_gone = |table: &io::Result<String>| {
            table.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if tables.iter().all(is_gone) {
            return Some(false);
        }
        let mut read = tables.iter().flatten().peekable();
        read.peek()?;
        Some(
            read.flat_map(|table| table.lines())
                .filter_map(listening_port)
                .any(|it| it == self.port),
        )
    }

    fn silence(&self, spec: &InstanceSpec, inner: &Inner) -> String {
        let (port, limit) = (self.port, spec.init_timeout.as_millis());
        let others = if spec.network == Network::Host { Vec::new() } else { listening(inner.pid) };
        let others: Vec<_> = others.iter().map(u16::to_string).collect();
        let instead = match others.as_slice() {
            [] => String::new(),
            ports => format!("; it listens at port {} instead", ports.join(", ")),
        };
        format!(
            "the server does not listen at port {port} of 127.0.0.1 or 0.0.0.0, which its variable \
             PORT names, after {limit} ms{instead}"
        )
    }
}

fn not_listening(message: String) -> StartError {
    let error_type = "Server.NotListening";
    let payload = serde_json::json!({"errorType": error_type, "errorMessage": message});
    StartError::Init { error_type: error_type.into(), message, payload: payload.to_string().into() }
}

/// The ports at which processes in the network of this one listen, without the platform's own.
fn listening(pid: i32) -> Vec<u16> {
    let mut ports: Vec<u16> = tables(pid)
        .iter()
        .flatten()
        .flat_map(|table| table.lines())
        .filter_map(listening_port)
        .collect();
    ports
        .retain(|port| ![RUNTIME_API_PORT, CHAIN_PORT].contains(port) && !services::is_port(*port));
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// The kernel's tables of the sockets in the network of this process.
fn tables(pid: i32) -> [io::Result<String>; 2] {
    ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")))
}

/// The port in a line of `/proc/net/tcp`, if it is that of a listening socket.
fn listening_port(line: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let (address, state) = (fields.next()?, fields.nth(1)?);
    let (_, port) = address.rsplit_once(':').filter(|_| state == LISTENS)?;
    u16::from_str_radix(port, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_read_from_the_kernels_table() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        let listens = "   0: 00000000:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000";
        let connected =
            "   1: 0100007F:0BB8 0100007F:1234 01 00000000:00000000 00:00000000 00000000";
        assert_eq!([head, listens, connected].map(listening_port), [None, Some(3000), None]);
    }
}
