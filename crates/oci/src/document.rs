//! Index, manifest and configuration, as the specification has them. What nobody here reads is left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Digest;

/// The annotation of an index's entry that is the image's tag.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// What names a part of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What it is.
    #[serde(default)]
    pub media_type: String,
    /// The digest of its bytes.
    pub digest: Digest,
    /// How many bytes it has.
    pub size: u64,
    /// What it runs on, if it is one of several variants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// What else is said of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// Whether it is an index.
    pub fn is_index(&self) -> bool {
        self.media_type.ends_with("image.index.v1+json")
            || self.media_type.ends_with("manifest.list.v2+json")
    }

    /// The tag that a layout gives it.
    pub fn tag(&self) -> Option<&str> {
        self.annotations.get(REF_NAME).map(String::as_str)
    }
}

/// What an image runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// As Go names it: `amd64`, `arm64`.
    pub architecture: String,
    /// `linux`.
    pub os: String,
}

/// A list of images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// The images, or indexes of variants.
    pub manifests: Vec<Descriptor>,
}

/// The parts of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Of its configuration.
    pub config: Descriptor,
    /// Of its layers, the lowest first.
    pub layers: Vec<Descriptor>,
}

/// An image's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// As Go names it.
    #[serde(default)]
    pub architecture: String,
    /// `linux`.
    #[serde(default)]
    pub os: String,
    /// How it is run.
    #[serde(default)]
    pub config: Option<Execution>,
    /// What its layers are, unpacked.
    pub rootfs: RootFs,
}

/// How an image is run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Execution {
    /// Environment variables, `NAME=value` each.
    pub env: Option<Vec<String>>,
    /// The program and its first arguments.
    pub entrypoint: Option<Vec<String>>,
    /// Further arguments; the program itself if there is no entry point.
    pub cmd: Option<Vec<String>>,
    /// Where it is started.
    pub working_dir: Option<String>,
}

/// What an image's layers are, unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// The digests of their archives without compression, the lowest first.
    pub diff_ids: Vec<Digest>,
}
