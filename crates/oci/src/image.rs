//! Which image of a source is meant, and what it consists of.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::document::{Configuration, Descriptor, Execution, Index, Manifest};
use crate::layer::Compression;
use crate::source::{Source, document};
use crate::{Digest, ImageError};

/// Docker's limit, and about what a mount's options have room for.
pub const MAX_LAYERS: usize = 127;

/// Indexes inside indexes that are followed.
const MAX_DEPTH: usize = 2;

/// Which image of a source is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The only one.
    Only,
    /// The one with this tag.
    Tag(String),
    /// The one whose manifest, or whose index of variants, has this digest.
    Digest(Digest),
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only => Ok(()),
            Self::Tag(tag) => write!(f, ":{tag}"),
            Self::Digest(digest) => write!(f, "@{digest}"),
        }
    }
}

/// A layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// What its archive is, compressed.
    pub blob: Descriptor,
    /// The digest of its archive without compression, by which it is known wherever it is used.
    pub diff_id: Digest,
}

/// What an image consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The digest of its manifest.
    pub digest: Digest,
    /// How it is run.
    pub execution: Execution,
    /// The lowest first.
    pub layers: Vec<Layer>,
}

impl Image {
    /// Reads the image that `selector` means and that runs on this machine, and checks all but the
    /// layers' bytes.
    pub fn read(source: &dyn Source, selector: &Selector) -> Result<Self, ImageError> {
        let descriptor = select(source, selector)?;
        let bytes = document(source, &descriptor, "manifest")?;
        let manifest: Manifest = parse(&bytes, "manifest")?;
        let bytes = document(source, &manifest.config, "configuration")?;
        let configuration: Configuration = parse(&bytes, "configuration")?;
        let is_named = |it: &str, own: &str| it.is_empty() || it == own;
        if !is_named(&configuration.os, "linux")
            || !is_named(&configuration.architecture, machine())
        {
            let found = format!("{}/{}", configuration.os, configuration.architecture);
            return Err(ImageError::Platform { found, wanted: machine().to_owned() });
        }
        let (layers, names) = (manifest.layers.len(), configuration.rootfs.diff_ids.len());
        if layers != names {
            return Err(ImageError::DiffIds { layers, names });
        }
        if layers > MAX_LAYERS {
            return Err(ImageError::Layers(layers, MAX_LAYERS));
        }
        // What is not supported is found before anything is unpacked.
        for layer in &manifest.layers {
            Compression::of(&layer.media_type)?;
        }
        let layers = manifest.layers.into_iter().zip(configuration.rootfs.diff_ids);
        Ok(Self {
            digest: descriptor.digest,
            execution: configuration.config.unwrap_or_default(),
            layers: layers.map(|(blob, diff_id)| Layer { blob, diff_id }).collect(),
        })
    }
}

/// This machine's architecture, as images name it.
pub fn machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, ImageError> {
    serde_json::from_slice(bytes)
        .map_err(|error| ImageError::Document(format!("the {what}"), error.to_string()))
}

/// The manifest that a selector means.
fn select(source: &dyn Source, selector: &Selector) -> Result<Descriptor, ImageError> {
    let Index { manifests } = source.index()?;
    let chosen: Vec<_> = manifests
        .iter()
        .filter(|it| match selector {
            Selector::Only => true,
            Selector::Tag(tag) => it.tag() == Some(tag),
            Selector::Digest(digest) => it.digest == *digest,
        })
        .cloned()
        .collect();
    let names: Vec<_> = manifests
        .iter()
        .map(|it| it.tag().map_or_else(|| it.digest.to_string(), str::to_owned))
        .collect();
    match (selector, chosen.len()) {
        // Variants of one image, without an index of their own.
        (_, 2..) if chosen.iter().all(|it| it.platform.is_some() && !it.is_index()) => {
            variant(source, chosen, 0)
        }
        (Selector::Only, 2..) => {
            let first = names.first().cloned().unwrap_or_default();
            Err(ImageError::Ambiguous(names.join(", "), first))
        }
        (_, 0) => {
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(ImageError::NoSuchImage { wanted: selector.to_string(), known })
        }
        _ => variant(source, chosen, 0),
    }
}

/// The variant that runs on this machine.
fn variant(
    source: &dyn Source,
    candidates: Vec<Descriptor>,
    depth: usize,
) -> Result<Descriptor, ImageError> {
    let fits = |it: &&Descriptor| {
        let platform = it.platform.as_ref();
        platform.is_none_or(|it| it.os == "linux" && it.architecture == machine())
    };
    let Some(chosen) = candidates.iter().find(fits) else {
        let platforms = candidates.iter().filter_map(|it| it.platform.as_ref());
        let found: Vec<_> = platforms.map(|it| format!("{}/{}", it.os, it.architecture)).collect();
        return Err(ImageError::Platform { found: found.join(", "), wanted: machine().to_owned() });
    };
    if !chosen.is_index() {
        return Ok(chosen.clone());
    }
    if depth == MAX_DEPTH {
        let problem = "it is an index inside an index inside an index".to_owned();
        return Err(ImageError::Document(format!("the index {}", chosen.digest), problem));
    }
    let index: Index = parse(&document(source, chosen, "index")?, "index")?;
    variant(source, index.manifests, depth + 1)
}
