//! Which files hold nothing but what the database has, as long as a start sets others aside.
//!
//! Such a start notes that whatever was written before it is not read again. If it is killed, the next one finds
//! files that were whole beside those that are set aside, and that somebody may have moved there for all it knows.
//! By this list, which is written before the database is told, it knows them again, by what is in them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// No name of a file with records.
const NAME: &str = "done.json";

/// The list. It holds for a start that has come as far as the database: otherwise that has another number.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Done {
    /// What the database notes as [`super::Noted::begun`] with the records.
    begun: u64,
    /// What is in the files, by their names.
    files: BTreeMap<String, String>,
}

impl Done {
    /// The list in `folder`, if it is of the start that has noted `begun`; an empty one otherwise.
    pub(super) fn read(folder: &Path, begun: u64) -> Self {
        let list = fs::read(folder.join(NAME)).ok();
        let list: Option<Self> = list.and_then(|text| serde_json::from_slice(&text).ok());
        list.filter(|list| list.begun == begun).unwrap_or_default()
    }

    /// Whether a file is on it, as it was.
    pub(super) fn has(&self, path: &Path) -> bool {
        let known = name(path).and_then(|name| self.files.get(name));
        known.is_some_and(|known| contents(path).is_ok_and(|contents| contents == *known))
    }

    /// Writes the list of these files.
    pub(super) fn write(folder: &Path, begun: u64, files: &[PathBuf]) -> io::Result<()> {
        let mut list = Self { begun, ..Self::default() };
        for path in files {
            let Some(name) = name(path) else { continue };
            list.files.insert(name.to_owned(), contents(path)?);
        }
        fs::write(folder.join(NAME), serde_json::to_vec(&list)?)
    }

    /// Removes it: the files are gone.
    pub(super) fn remove(folder: &Path) {
        let _ = fs::remove_file(folder.join(NAME));
    }
}

fn name(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn contents(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| hex(&Sha256::digest(bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
