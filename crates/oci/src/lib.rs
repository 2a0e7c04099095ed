//! Container images on disk: reads OCI layouts, verifies them, and unpacks layers for overlayfs.
//!
//! ```text
//! Source ──index──► Selector ──► manifest, configuration ──► Image ──► layer::unpack, one layer each
//! ```
//!
//! | module | concern |
//! |---|---|
//! | [`digest`] | SHA-256 digests, and readers that check them |
//! | [`document`] | index, manifest and configuration, as the specification has them |
//! | [`source`] | where the parts of an image come from: the seam under everything that reads |
//! | [`layout`] | a source: an OCI image layout, as a folder or as a tar file of one |
//! | [`image`] | which image of a source is meant, and what it consists of |
//! | [`layer`] | a layer's archive, applied to a folder that overlayfs can stack |
//!
//! After the OCI image specification 1.1 (image-layout.md, image-index.md, manifest.md, config.md,
//! layer.md). Nothing here knows a registry, a function or a mount.

pub mod digest;
pub mod document;
mod error;
pub mod image;
pub mod layer;
pub mod layout;
pub mod source;

pub use digest::Digest;
pub use error::ImageError;
pub use image::{Image, Layer, Selector};
pub use source::Source;
