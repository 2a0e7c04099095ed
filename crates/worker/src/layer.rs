//! Layers: packages that functions find at `/opt`, in versions that never change.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::store::Code;

/// Where in the layers extensions are, each a program.
const EXTENSIONS: &str = "extensions";

/// All versions of one layer that there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layer {
    /// The highest number that a version has had: none is given twice.
    pub last_version: u32,
    pub versions: BTreeMap<u32, Arc<LayerVersion>>,
}

/// A version of a layer.
#[derive(Debug, Clone)]
pub(crate) struct LayerVersion {
    pub name: String,
    pub number: u32,
    pub about: LayerAbout,
    pub code: Arc<Code>,
    /// Why it cannot be used, if its package was lost.
    pub broken: Option<String>,
}

/// What PublishLayerVersion says of a version, as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerAbout {
    pub description: String,
    pub license: String,
    pub runtimes: Vec<String>,
    pub architectures: Vec<String>,
    pub created_unix_ms: i64,
}

/// A layer's version as a function names it. The function keeps its package, whether or not the version
/// is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerUse {
    pub arn: String,
    pub sha256: String,
    /// Of the zip file.
    pub bytes: u64,
}

/// What a function has of its layers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Layers {
    /// All of them in one folder; None without layers.
    opt: Option<Arc<Code>>,
    /// The names of the extensions in it, in order.
    extensions: Vec<String>,
}

impl Layers {
    /// `opt`: the packages, laid over each other. Only for threads that may wait.
    pub(crate) fn new(opt: Option<Arc<Code>>) -> Self {
        let extensions = opt.as_ref().map(|opt| extensions(&opt.folder())).unwrap_or_default();
        Self { opt, extensions }
    }

    /// The package that all of them are in.
    pub(crate) fn opt(&self) -> Option<&Arc<Code>> {
        self.opt.as_ref()
    }

    pub(crate) fn folder(&self) -> Option<PathBuf> {
        self.opt.as_ref().map(|opt| opt.folder())
    }

    pub(crate) fn extensions(&self) -> &[String] {
        &self.extensions
    }

    /// Every package that there must be for it.
    pub(crate) fn packages(&self) -> impl Iterator<Item = &Arc<Code>> {
        self.opt.iter().flat_map(|opt| std::iter::once(opt).chain(opt.parts()))
    }
}

/// The programs in the extensions' folder. Who cannot be listed has none.
fn extensions(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder.join(EXTENSIONS)) else { return Vec::new() };
    let is_program = |path: PathBuf| {
        fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let mut names: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| is_program(entry.path()))
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
