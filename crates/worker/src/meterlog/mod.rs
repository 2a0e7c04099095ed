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
