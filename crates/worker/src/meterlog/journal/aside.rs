//! Files in the journal's folder that cannot be read, or only in part: they are kept, under another name.
//!
//! The journal goes on without them. They are renamed where they are, which takes no room on a full disk and is
//! done or not done when the platform is killed, and no version of the platform reads them by their new name.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::JournalError;

/// What follows the name of a file that is set aside; a number follows where there is one already.
const MARK: &str = ".set-aside";
/// What to do with it. By the time anybody reads this, the log has other rows under the numbers that its rows
/// have, or counts them as done.
const KEEP: &str = "Keep it, or move it elsewhere; do not move it back";
/// Of a longer name this is kept: with what follows, it is a name that any file system takes.
const KEPT_NAME_BYTES: usize = 200;

/// Why a file is set aside: what follows its name in a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Problem {
    #[error("is not of this log's journal")]
    Foreign,
    #[error(
        "was written by another version of uncia (its format is {found}, this one knows {known})"
    )]
    Format { found: u16, known: u16 },
    #[error("is damaged at byte {at}, more than a crash does; {skipped} bytes were skipped")]
    Damaged { at: usize, skipped: usize },
    #[error("is empty, and files after it are not")]
    Emptied,
    #[error("has a record (number {number}) that this version of uncia cannot read ({error})")]
    Record { number: u64, error: String },
    #[error("has other records than an earlier file under the same numbers, from {0} on")]
    Conflict(u64),
    #[error(
        "has records from {0} on, which a worker wrote before the last start: it was moved there since"
    )]
    Returned(u64),
    #[error("is not a file")]
    NotAFile,
    #[error("is not a folder")]
    NotAFolder,
    #[error("cannot be read ({0})")]
    Unreadable(String),
}

impl Problem {
    /// Which of its rows are not in the log: what follows in the sentence.
    fn loss(&self) -> &'static str {
        match self {
            Self::Foreign | Self::Format { .. } | Self::Conflict(_) | Self::Unreadable(_) => {
                "The rows in it are not in the log"
            }
            Self::Damaged { .. } => {
                "The rows in the bytes that were skipped are not in the log; the others are"
            }
            Self::Emptied => "The rows that were in it alone are not in the log",
            Self::Record { .. } => "Such rows are not in the log; the others are",
            Self::Returned(_) => {
                "Nothing was read from it: rows that are only in it are not in the log"
            }
            Self::NotAFile | Self::NotAFolder => "If somebody has put it there, nothing is lost",
        }
    }
}

/// Renames a file for what is wrong with it; returns a sentence.
pub(super) fn set_aside(path: &Path, problem: &Problem) -> String {
    let what = match move_away(path) {
        Ok(place) => format!(
            "{} {problem}: it is kept as {}, and the journal goes on without it.",
            path.display(),
            place.display()
        ),
        Err(error) => format!(
            "{} {problem}: the journal goes on without it, though it cannot be renamed ({error}).",
            path.display()
        ),
    };
    format!("{what} {}. {}", problem.loss(), KEEP)
}

/// Renames a file or folder to where nothing is; returns where that is.
fn move_away(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().as_bytes();
    let name = OsStr::from_bytes(&name[..name.len().min(KEPT_NAME_BYTES)]);
    for number in 1_u64.. {
        let mut marked = name.to_owned();
        marked.push(MARK);
        if number > 1 {
            marked.push(format!("-{number}"));
        }
        let place = path.with_file_name(marked);
        // Nobody else makes files here: the state folder is this worker's alone.
        match fs::symlink_metadata(&place) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return fs::rename(path, &place).map(|()| place);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("all names are taken"))
}

/// What earlier starts have set aside in `folder`; a sentence, if there is anything.
pub(super) fn earlier(folder: &Path) -> Result<Option<String>, JournalError> {
    let unreadable = |error: io::Error| JournalError::unreadable(folder, &error);
    let entries = match fs::read_dir(folder) {
        Err(error) if is_no_folder(&error) => return Ok(None),
        entries => entries.map_err(unreadable)?,
    };
    let mut first: Option<OsString> = None;
    let mut count = 0;
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        if is_marked(&name) {
            count += 1;
            first = Some(first.map_or_else(|| name.clone(), |first| first.min(name.clone())));
        }
    }
    Ok(first.map(|first| {
        let first = folder.join(first);
        let first = first.display();
        let (what, they) = match count {
            1 => (format!("{first} was"), "it"),
            _ => (format!("{first} and {} more files were", count - 1), "them"),
        };
        format!(
            "{what} set aside at an earlier start: rows that are only in {they} are not in the log. Keep {they}, or \
             move {they} elsewhere; do not move {they} back"
        )
    }))
}

/// Whether a file has been set aside.
fn is_marked(name: &OsStr) -> bool {
    let name = name.to_owned().into_vec();
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = &name[..name.len() - digits];
    let rest = if digits > 0 { rest.strip_suffix(b"-") } else { Some(rest) };
    rest.is_some_and(|rest| rest.ends_with(MARK.as_bytes()))
}

/// Whether there is nothing to be listed.
pub(super) fn is_no_folder(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_there_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let long = "n".repeat(247) + ".records";
        for name in ["1.records", &long] {
            let path = folder.path().join(name);
            let mut places = Vec::new();
            for round in 0..20 {
                match round % 3 {
                    0 => fs::write(&path, format!("{round}")).unwrap(),
                    1 => fs::create_dir(&path).unwrap(),
                    _ => std::os::unix::fs::symlink("nowhere", &path).unwrap(),
                }
                places.push(move_away(&path).unwrap());
                assert!(path.symlink_metadata().is_err());
            }
            for (round, place) in places.iter().enumerate() {
                assert!(is_marked(place.file_name().unwrap()), "{place:?}");
                match round % 3 {
                    0 => assert_eq!(fs::read_to_string(place).unwrap(), format!("{round}")),
                    1 => assert!(place.is_dir()),
                    _ => assert_eq!(fs::read_link(place).unwrap(), Path::new("nowhere")),
                }
            }
        }
        let sentence = earlier(folder.path()).unwrap().unwrap();
        let expected = "1.records.set-aside and 39 more files were set aside";
        assert!(sentence.contains(expected), "{sentence}");
        for name in ["1.records", "1.records.set-aside-", "x-2", ".set-asid", "2"] {
            assert!(!is_marked(OsStr::new(name)), "{name}");
        }
    }
}
