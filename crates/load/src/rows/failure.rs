use std::io;

use crate::http1::ResponseError;
use crate::http2::SessionError;
use crate::net::socket;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("no connection within {} ms", .timeout_ns / 1_000_000)]
    ConnectTimeout { timeout_ns: i64 },
    #[error("no first byte of an answer within {} ms", .timeout_ns / 1_000_000)]
    FirstByteTimeout { timeout_ns: i64 },
    #[error("no complete answer within {} ms", .timeout_ns / 1_000_000)]
    TotalTimeout { timeout_ns: i64 },
    #[error("interrupted: the run was stopped before the answer had come")]
    Interrupted,
    #[error("not sent: {reason}")]
    Unmade { reason: String },
    #[error("cannot connect: {}", explain(.0))]
    Connect(io::Error),
    #[error("TLS failed: {0}")]
    Tls(io::Error),
    #[error("the connection failed while the request was sent: {0}")]
    Send(io::Error),
    #[error("the connection failed before the answer was complete: {0}")]
    Receive(io::Error),
    #[error("{0}")]
    Response(ResponseError),
    #[error("{0}")]
    Session(SessionError),
}

impl Failure {
    /// The outcome of the request.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::ConnectTimeout { .. }
            | Self::FirstByteTimeout { .. }
            | Self::TotalTimeout { .. } => "timeout",
            _ => "transport_error",
        }
    }
}

fn explain(error: &io::Error) -> String {
    if socket::is_out_of_descriptors(error) {
        return format!("{error}; raise the limit (`ulimit -n`), or set max_connections");
    }
    if error.kind() == io::ErrorKind::AddrNotAvailable {
        return format!("{error}: every local port to this address is in use");
    }
    error.to_string()
}
