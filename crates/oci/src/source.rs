//! Where the parts of an image come from: the seam under everything that reads one.

use std::io::Read;

use crate::document::{Descriptor, Index};
use crate::{Digest, ImageError};

/// Largest document that is read: index, manifest or configuration. Registries take 4 MiB.
const MAX_DOCUMENT_BYTES: u64 = 4 * 1024 * 1024;

/// Something that holds images by digest, such as a layout on disk. What it gives is checked by whoever
/// reads it, so that nothing of it need be trusted.
pub trait Source {
    /// The images that it has. One that is asked for a single image, such as a registry for a tag, has an
    /// index of that alone.
    fn index(&self) -> Result<Index, ImageError>;

    /// The bytes with this digest, not yet checked.
    fn blob(&self, digest: &Digest) -> Result<Box<dyn Read + Send + '_>, ImageError>;
}

/// Reads a document and checks it against its descriptor.
pub(crate) fn document(
    source: &dyn Source,
    descriptor: &Descriptor,
    what: &str,
) -> Result<Vec<u8>, ImageError> {
    let what = || format!("the {what} {}", descriptor.digest);
    if descriptor.size > MAX_DOCUMENT_BYTES {
        return Err(ImageError::Document(
            what(),
            format!("it has {} bytes; at most {MAX_DOCUMENT_BYTES} are allowed", descriptor.size),
        ));
    }
    let mut bytes = Vec::new();
    source.blob(&descriptor.digest)?.take(descriptor.size + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != descriptor.size {
        let more = bytes.len() as u64 > descriptor.size;
        let found = if more { "more".to_owned() } else { bytes.len().to_string() };
        return Err(ImageError::Size { what: what(), expected: descriptor.size, found });
    }
    let found = Digest::of(&bytes);
    if found != descriptor.digest {
        let expected = descriptor.digest.to_string();
        return Err(ImageError::Mismatch { what: what(), expected, found: found.to_string() });
    }
    Ok(bytes)
}
