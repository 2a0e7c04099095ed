//! What stops all monitors.

use uncia_record::RecordError;

/// Why monitors could not be started, or could not go on.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The configuration asks for what cannot be.
    #[error("{0}")]
    Config(String),
    /// The rows cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The system refuses what streaming needs.
    #[error("cannot stream rows: {0}")]
    Io(#[from] std::io::Error),
}
