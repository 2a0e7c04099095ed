//! The host's files that a root was made of, and whether they are still the same.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::tree;

/// What Python compiles of its library, which follows from the library.
const COMPILED: &str = "__pycache__";

/// A list of files and folders, as they were when a root was made.
#[derive(Serialize, Deserialize)]
pub(super) struct Sources {
    /// Digest of what the root was to hold.
    recipe: String,
    /// By path; `None` if there was nothing.
    files: BTreeMap<String, Option<Stamp>>,
}

/// What the file system says of a file: together different after every change of it, and after
/// another one has taken its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    size: u64,
    /// Time of the last change of contents or attributes, which nobody can set: seconds and ns.
    changed: (i64, i64),
}

impl Stamp {
    /// Follows links: what matters is the file that is copied.
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            inode: metadata.ino(),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

impl Sources {
    pub(super) fn new(recipe: String) -> Self {
        Self { recipe, files: BTreeMap::new() }
    }

    /// Reads a list; `None` if there is none, or none that can be read.
    pub(super) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        tree::write(path, &serde_json::to_string(self)?)
    }

    /// Notes a file or folder as it is now, be it missing.
    pub(super) fn add(&mut self, path: &Path) {
        if path.components().all(|part| part.as_os_str() != COMPILED) {
            // A name that is no text is looked for in vain, and the root made anew each time.
            self.files.insert(path.to_string_lossy().into_owned(), Stamp::of(path));
        }
    }

    /// Whether a root made now would be the same. Costs a look at each file's attributes.
    pub(super) fn are_current(&self, recipe: &str) -> bool {
        self.recipe == recipe && self.are_as_they_were()
    }

    /// Whether none of the files has changed.
    pub(super) fn are_as_they_were(&self) -> bool {
        self.files.iter().all(|(path, stamp)| Stamp::of(Path::new(path)) == *stamp)
    }
}
