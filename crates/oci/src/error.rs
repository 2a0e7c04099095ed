//! What can be wrong with an image, a sentence each.

use std::io;

/// Why an image cannot be used. `Io` is the machine's fault, all else the image's.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum ImageError {
    #[error("{0} is no OCI image layout: {1}")]
    NotALayout(String, String),
    #[error("{0:?} is no digest: it must be sha256: and 64 hexadecimal digits")]
    Digest(String),
    #[error("{0} is missing")]
    Missing(String),
    #[error("{0} cannot be read: {1}")]
    Document(String, String),
    #[error("there is no image {wanted} in the layout; it has {known}")]
    NoSuchImage { wanted: String, known: String },
    #[error("the layout has several images: name one of {0} behind the path, such as :{1}")]
    Ambiguous(String, String),
    #[error("the image is for {found}, and this machine is linux/{wanted}")]
    Platform { found: String, wanted: String },
    #[error("{what} has {found} bytes, and not {expected} as its descriptor says")]
    Size { what: String, expected: u64, found: String },
    #[error("{what} is not what its digest says: it has {found}, and should have {expected}")]
    Mismatch { what: String, expected: String, found: String },
    #[error(
        "the layers of the image are of type {0:?}, which is not supported; tar archives, as they are, with gzip or with zstd, are"
    )]
    MediaType(String),
    #[error("the image has {0} layers; at most {1} are allowed")]
    Layers(usize, usize),
    #[error("the image has {layers} layers, and its configuration names {names}")]
    DiffIds { layers: usize, names: usize },
    #[error("layer {layer}: {problem}")]
    Layer { layer: String, problem: String },
    #[error("{0}")]
    Registry(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl ImageError {
    /// Whether the machine is at fault, and not the image.
    pub fn is_io(&self) -> bool {
        matches!(self, Self::Io(_))
    }
}
