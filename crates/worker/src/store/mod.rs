//! What outlives the worker: the functions and their code, in the state folder.
//!
//! ```text
//! lock              held while a worker uses the folder
//! registry.sqlite   the functions: configurations, tags, URLs
//! meter.sqlite      the log of invocations, spans and instances; accepted asynchronous invocations
//! code/<sha256>/    deployment packages, unpacked
//! packages/<sha256>.zip
//! staging/          what is not complete yet; emptied at the start
//! ```
//!
//! Whatever the umask, other users may enter the folder and `code`, and read what is unpacked
//! there; all else is the owner's.

pub mod database;
mod folders;
mod lock;
mod package;
mod packages;
mod registry;

pub use database::DatabaseError;
pub use lock::{LockError, StateLock};
pub use package::{PackageError, check_handler};
pub use packages::Code;
pub use registry::{Registry, StoreError};

/// Whether an error says that the disk is full.
pub fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
