//! A layer's archive, applied to a folder that overlayfs can stack.
//!
//! What becomes of what an archive holds:
//!
//! | in the archive | in the folder |
//! |---|---|
//! | files, folders, symbolic and hard links | the same; hard links lead to files of the same layer |
//! | owners | none: all is the unpacking process's, and of the group that [`Rules`] name |
//! | permissions | the owner's, which the group gets too; no set-user-id, set-group-id or sticky bits |
//! | times of modification | the same, to the second |
//! | extended attributes, devices, pipes | nothing |
//! | whiteouts (`.wh.NAME`, `.wh..wh..opq`) | what overlayfs takes for one |
//!
//! Names are relative to the folder, however they are written, and nothing outside of it is touched: `..` is
//! refused, and links on the way to a name are followed as if the folder were the root. Folders that no entry names
//! count as entries; they lie in at most 512 others.

mod apply;
mod archive;
mod compression;

use std::io::{self, BufReader, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use self::apply::Applier;
use self::archive::{Archive, BLOCK_BYTES};
pub use self::compression::Compression;
use crate::digest::Digesting;
use crate::image::Layer;
use crate::{Digest, ImageError, Source};

/// How layers are unpacked.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The group that gets all files, with the rights of their owner. None: the process's own.
    pub group: Option<u32>,
    /// Whether overlayfs is mounted by root, who marks folders by other attributes than users do.
    pub is_root: bool,
    /// Most files, folders and links of a layer.
    pub max_entries: u64,
    /// Most bytes that its files may have in all.
    pub max_bytes: u64,
}

/// What a layer holds, unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Files, folders and links.
    pub entries: u64,
    /// Bytes in files.
    pub bytes: u64,
}

impl Contents {
    /// Counts an entry of so many bytes, unless it is one too many.
    fn add(&mut self, bytes: u64, rules: &Rules) -> Result<(), String> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > rules.max_entries {
            return Err(format!("it holds more than {} files", rules.max_entries));
        }
        if self.bytes > rules.max_bytes {
            return Err(format!("its files have more than {} bytes", rules.max_bytes));
        }
        Ok(())
    }
}

/// What went wrong with an archive.
#[derive(Debug)]
enum Problem {
    /// What the archive holds.
    Archive(String),
    /// What the machine could not do.
    Machine(io::Error),
}

impl From<rustix::io::Errno> for Problem {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Machine(error.into())
    }
}

/// What headers, padding and the end of an archive may take beside the bytes in files.
const MAX_OVERHEAD_BYTES: u64 = 1 << 30;

const BUFFER_BYTES: usize = 256 * 1024;

/// Unpacks a layer into a folder that is there and empty; whoever calls this removes that after an error. The
/// bytes are checked against both digests while they are read.
pub fn unpack(
    source: &dyn Source,
    layer: &Layer,
    folder: &Path,
    rules: &Rules,
) -> Result<Contents, ImageError> {
    let compression = Compression::of(&layer.blob.media_type)?;
    // To make a quarter of a million files before refusing the next takes minutes; to count them, seconds.
    let may_hold_too_many = layer.blob.size / BLOCK_BYTES > rules.max_entries;
    if compression != Compression::None || may_hold_too_many {
        count(source, layer, compression, rules)?;
    }
    // One more, to notice that there are more.
    let blob = source.blob(&layer.blob.digest)?.take(layer.blob.size.saturating_add(1));
    let mut blob = Digesting::new(BufReader::with_capacity(BUFFER_BYTES, blob));
    let limit = rules.max_bytes.saturating_add(MAX_OVERHEAD_BYTES);
    let result = if compression == Compression::None {
        apply((&mut blob).take(limit), layer, folder, rules)
    } else {
        // Both digests, each of what it is of.
        let plain = compression.decoder(&mut blob).take(limit);
        let mut plain = Digesting::new(plain);
        apply(&mut plain, layer, folder, rules).and_then(|contents| {
            let end = plain.finish().map_err(|error| unreadable(layer, &error))?;
            check_plain(layer, &end.0, end.1 >= limit, limit).map(|()| contents)
        })
    };
    // Damage shows as nonsense first; what it is, its digest says.
    let (digest, bytes) = blob.finish()?;
    check_blob(layer, &digest, bytes)?;
    if compression == Compression::None {
        check_plain(layer, &digest, bytes >= limit, limit)?;
    }
    result
}

/// Checks that an archive, of the layer's blob, is the layer's once it is without compression.
///
/// # Errors
/// It is another's, cannot be read, or unpacks to too much.
pub fn verify(archive: impl Read, layer: &Layer, rules: &Rules) -> Result<(), ImageError> {
    let compression = Compression::of(&layer.blob.media_type)?;
    let archive = BufReader::with_capacity(BUFFER_BYTES, archive);
    let limit = rules.max_bytes.saturating_add(MAX_OVERHEAD_BYTES);
    let plain = Digesting::new(compression.decoder(archive).take(limit));
    let (digest, bytes) = plain.finish().map_err(|error| unreadable(layer, &error))?;
    check_plain(layer, &digest, bytes >= limit, limit)
}

/// Refuses a layer that holds too much before anything of it is made.
fn count(
    source: &dyn Source,
    layer: &Layer,
    compression: Compression,
    rules: &Rules,
) -> Result<(), ImageError> {
    let blob = source.blob(&layer.blob.digest)?.take(layer.blob.size);
    let blob = BufReader::with_capacity(BUFFER_BYTES, blob);
    let limit = rules.max_bytes.saturating_add(MAX_OVERHEAD_BYTES);
    let mut archive = Archive::new(compression.decoder(blob).take(limit));
    let mut contents = Contents { entries: 0, bytes: 0 };
    // What else is wrong is found when it is unpacked, with what its digest says of it.
    while let Ok(Some(entry)) = archive.next() {
        contents.add(entry.bytes, rules).map_err(|sentence| problem(layer, sentence))?;
    }
    Ok(())
}

fn apply(
    archive: impl Read,
    layer: &Layer,
    folder: &Path,
    rules: &Rules,
) -> Result<Contents, ImageError> {
    let applier = Applier::new(folder, *rules);
    let applied = applier.and_then(|applier| applier.apply(&mut Archive::new(archive)));
    applied.map_err(|error| match error {
        Problem::Archive(sentence) => problem(layer, sentence),
        Problem::Machine(error) => ImageError::Io(error),
    })
}

fn problem(layer: &Layer, problem: String) -> ImageError {
    ImageError::Layer { layer: layer.diff_id.to_string(), problem }
}

fn unreadable(layer: &Layer, error: &io::Error) -> ImageError {
    problem(layer, format!("its archive cannot be read: {error}"))
}

/// Checks the archive without compression.
fn check_plain(
    layer: &Layer,
    digest: &Digest,
    is_too_long: bool,
    limit: u64,
) -> Result<(), ImageError> {
    if is_too_long {
        return Err(problem(layer, format!("it unpacks to more than {limit} bytes")));
    }
    if *digest != layer.diff_id {
        return Err(ImageError::Mismatch {
            what: "an unpacked layer".to_owned(),
            expected: layer.diff_id.to_string(),
            found: digest.to_string(),
        });
    }
    Ok(())
}

fn check_blob(layer: &Layer, digest: &Digest, bytes: u64) -> Result<(), ImageError> {
    let what = format!("the layer {}", layer.blob.digest);
    let expected = layer.blob.size;
    if bytes != expected {
        let found = if bytes > expected { "more".to_owned() } else { bytes.to_string() };
        return Err(ImageError::Size { what, expected, found });
    }
    if *digest != layer.blob.digest {
        let expected = layer.blob.digest.to_string();
        return Err(ImageError::Mismatch { what, expected, found: digest.to_string() });
    }
    Ok(())
}
