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

/// No names of files with records.
const NAME: &str = "done.json";
const NEW_NAME: &str = "done.json.new";

/// What the database notes as [`super::Noted::begun`] with the records.
type Begun = u64;

/// The files, by name, with what is in them.
type Files = BTreeMap<String, String>;

/// The list: which files are done if the database has noted that number.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Done(BTreeMap<Begun, Files>);

impl Done {
    /// The list in `folder` as far as it is of the start that has noted `begun`.
    pub(super) fn read(folder: &Path, begun: Begun) -> Self {
        let list = fs::read(folder.join(NAME)).ok();
        let list: Option<Self> = list.and_then(|text| serde_json::from_slice(&text).ok());
        let files = list.and_then(|mut list| list.0.remove(&begun));
        Self(files.map(|files| (begun, files)).into_iter().collect())
    }

    /// Whether a file is on it, as it was.
    pub(super) fn has(&self, path: &Path) -> bool {
        let known = name(path).and_then(|name| self.0.values().find_map(|files| files.get(name)));
        known.is_some_and(|known| contents(path).is_ok_and(|contents| contents == *known))
    }

    /// Writes that these files are done once the database notes `next`. What holds while it has noted `begun` stays,
    /// should this start not come as far; what others have written that did not goes.
    pub(super) fn write(
        folder: &Path,
        begun: Begun,
        next: Begun,
        files: &[PathBuf],
    ) -> io::Result<()> {
        let mut list = Self::read(folder, begun);
        for path in files {
            let Some(name) = name(path) else { continue };
            list.0.entry(next).or_default().insert(name.to_owned(), contents(path)?);
        }
        if list.0.is_empty() {
            return match fs::remove_file(folder.join(NAME)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        // Whole, or as it was.
        let new = folder.join(NEW_NAME);
        fs::write(&new, serde_json::to_vec(&list)?)?;
        fs::rename(new, folder.join(NAME))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_for_the_start_that_has_come_to_the_database() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let [first, second] = ["1.records", "2.records"].map(|name| folder.join(name));
        fs::write(&first, "first").unwrap();
        fs::write(&second, "second").unwrap();
        // A start has come to the database, and the next one has not.
        Done::write(folder, 1, 4, std::slice::from_ref(&first)).unwrap();
        Done::write(folder, 4, 6, std::slice::from_ref(&second)).unwrap();
        assert!(Done::read(folder, 4).has(&first) && !Done::read(folder, 4).has(&second));
        assert!(Done::read(folder, 6).has(&second));
        // The one that has noted 6 has none to list; what would have held with 7 is another start's.
        Done::write(folder, 6, 7, std::slice::from_ref(&first)).unwrap();
        Done::write(folder, 6, 6, &[]).unwrap();
        assert!(Done::read(folder, 6).has(&second) && !Done::read(folder, 7).has(&first));
        // One that nobody has told the database of is forgotten with the next.
        Done::write(folder, 5, 5, &[]).unwrap();
        assert!(!folder.join(NAME).exists());
        fs::write(&second, "other").unwrap();
        Done::write(folder, 0, 6, std::slice::from_ref(&first)).unwrap();
        fs::write(&first, "other").unwrap();
        assert!(!Done::read(folder, 6).has(&first));
        fs::write(folder.join(NAME), "{").unwrap();
        assert!(!Done::read(folder, 6).has(&second));
    }
}
