use std::path::PathBuf;

/// Why a table could not be written or read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum RecordError {
    #[error("{action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path} is not a readable Arrow IPC stream: {source}")]
    NotAStream { path: PathBuf, source: arrow_schema::ArrowError },
    #[error("{path}: the table could not be encoded: {source}")]
    Arrow { path: PathBuf, source: arrow_schema::ArrowError },
    #[error(
        "{path} was written with table schema version {found}; this build reads version {expected}"
    )]
    Version { path: PathBuf, found: String, expected: u32 },
    #[error(
        "the value {value} has more digits than {column}, a decimal of {precision} digits, holds"
    )]
    DecimalOverflow { column: &'static str, value: i128, precision: u8 },
}
