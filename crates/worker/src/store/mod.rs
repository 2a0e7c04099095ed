//! What outlives the worker: the functions and their code, in the state folder.
//!
//! ```text
//! lock              held while a worker uses the folder
//! registry.sqlite   functions and layers: configurations, tags, URLs, versions, aliases
//! meter.sqlite      the log of invocations, spans and instances; accepted asynchronous invocations
//! machines.sqlite   state machines and their executions
//! journal/          rows on their way into meter.sqlite
//! code/<sha256>/    deployment packages and layers, unpacked; several layers over each other
//! bytecode/<sha256>/<runtime>-<version>/   byte code of their sources
//! packages/<sha256>.zip
//! images/<sha256>.json   images, by the digests of their manifests
//! layers/<sha256>/    layers of images, unpacked, by the digests of their archives
//! fetched/images/<sha256>-<sha256>.json   images in registries, by their digests and those of their repositories
//! fetched/layers/<sha256>/   what is fetched when an instance starts, unpacked: layers of images, and zip files
//! mounts/             where roots of images are mounted, in each instance's own namespace
//! staging/          what is not complete yet; emptied at the start
//! ```
//!
//! Whatever the umask, other users may enter the folder, `code` and `bytecode`, and read what is
//! there; all else is the owner's.

mod byte_code;
pub(crate) mod database;
mod fetched;
mod folders;
mod images;
mod layers;
mod links;
mod lock;
mod package;
mod packages;
mod recent;
mod registry;

pub(crate) use database::DatabaseError;
pub(crate) use fetched::{FetchedZip, Origin};
pub(crate) use images::StoredImage;
pub(crate) use lock::{LockError, StateLock};
pub(crate) use package::{MAX_UNZIPPED_BYTES, MAX_ZIPPED_BYTES, PackageError, check_handler};
pub(crate) use packages::{Code, PackageStore};
pub(crate) use registry::{Registry, StoreError};

/// Whether an error says that the disk is full.
pub(crate) fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}
