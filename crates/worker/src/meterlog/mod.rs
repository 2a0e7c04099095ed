//! The platform's own log: invocations, spans and instances, durable before an answer goes out.
//!
//! One thread writes, and commits together whatever arrived while it was busy with the last commit,
//! so that many answers wait for one. Whoever reads has a connection of their own.

mod reader;
mod tables;
mod writer;

use std::path::PathBuf;

pub use reader::{Query, Reader};
pub use writer::{AcceptedEvent, MeterLog, Recorded};

/// What an attempt's row means for the event that it was an attempt of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventUpdate {
    Done { id: i64 },
    Failed { id: i64, attempt: i64, failures: i64 },
    Attempted { id: i64, attempt: i64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleInterval {
    pub instance: std::sync::Arc<str>,
    pub start: i64,
    pub end: i64,
}

/// An event that an earlier worker accepted, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingEvent {
    pub id: i64,
    pub function: String,
    pub request_id: String,
    pub invocation: String,
    pub attempt: i64,
    pub failures: i64,
    pub payload_bytes: usize,
    pub client_context: Option<String>,
}

/// Why the log could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    #[error("{path}: {message}")]
    Database { path: PathBuf, message: String },
    #[error("{path} was written by another version of uncia (its tables are version {found})")]
    Version { path: PathBuf, found: i64 },
    #[error("the log is closed")]
    Closed,
}
