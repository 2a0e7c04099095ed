//! One worker per state folder.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::folders;

/// The lock is nobody else's to hold.
const PRIVATE_FILE: u32 = 0o600;

/// Why a state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("the state folder {path} cannot be made: {source}; choose another folder")]
    Create { path: PathBuf, source: io::Error },
    #[error(
        "the state folder {path} is not writable: {source}; make it so, or choose another folder"
    )]
    Open { path: PathBuf, source: io::Error },
    #[error(
        "{path} is not a state folder: its {entry} is no platform's; choose an empty folder, or one that does not \
         exist"
    )]
    Foreign { path: PathBuf, entry: &'static str },
    #[error(
        "the state folder {0} is in use by another worker; stop that one, or choose another folder"
    )]
    InUse(PathBuf),
}

/// Files of which each shows that a platform has used the folder.
const OURS: [&str; 3] = ["registry.sqlite", "meter.sqlite", "cgroups.json"];
/// Folders from which the platform removes what it does not know.
const SWEPT: [&str; 9] = [
    "code",
    "bytecode",
    "packages",
    "images",
    "layers",
    "fetched",
    "staging",
    "runtimes",
    "containers",
];

/// Holds the state folder until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub(crate) struct StateLock {
    _file: Flock<File>,
}

impl StateLock {
    /// Makes the state folder if need be, and takes its lock.
    pub(crate) fn take(state: &Path) -> Result<Self, LockError> {
        if let Some(entry) = foreign_entry(state) {
            return Err(LockError::Foreign { path: state.to_owned(), entry });
        }
        let not_writable = |source| LockError::Open { path: state.to_owned(), source };
        folders::ensure_state(state).map_err(|source| {
            if state.is_dir() {
                not_writable(source)
            } else {
                LockError::Create { path: state.to_owned(), source }
            }
        })?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(PRIVATE_FILE)
            .open(state.join("lock"))
            .map_err(not_writable)?;
        // An earlier version left it readable for all.
        file.set_permissions(Permissions::from_mode(PRIVATE_FILE)).map_err(not_writable)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Self { _file: file }),
            Err((_, Errno::EWOULDBLOCK)) => Err(LockError::InUse(state.to_owned())),
            Err((_, errno)) => Err(not_writable(errno.into())),
        }
    }
}

/// A folder with something in it that the platform would remove, though no platform has made it.
fn foreign_entry(folder: &Path) -> Option<&'static str> {
    // Other programs have files of this name too, with a process's number for example.
    let has_lock = fs::symlink_metadata(folder.join("lock"))
        .is_ok_and(|lock| lock.is_file() && lock.len() == 0);
    if has_lock || OURS.iter().any(|name| folder.join(name).exists()) {
        return None;
    }
    // What cannot be listed cannot be removed either.
    let has_entries =
        |name: &str| fs::read_dir(folder.join(name)).is_ok_and(|mut it| it.next().is_some());
    SWEPT.into_iter().find(|name| has_entries(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_refused_until_the_first_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("deep/state");
        let first = StateLock::take(&state).unwrap();
        let refused = StateLock::take(&state).unwrap_err();
        assert!(matches!(refused, LockError::InUse(_)), "{refused}");
        drop(first);
        StateLock::take(&state).unwrap();
    }

    #[test]
    fn a_folder_of_something_else_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("project");
        fs::create_dir_all(project.join("code/deep")).unwrap();
        fs::set_permissions(&project, Permissions::from_mode(0o755)).unwrap();
        let message = StateLock::take(&project).unwrap_err().to_string();
        assert!(message.contains("is not a state folder: its code is no platform's"), "{message}");
        let mode = fs::metadata(&project).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode, fs::read_dir(&project).unwrap().count()), (0o755, 1));
        let take = |name: &str, entries: &[(&str, &str)]| {
            let state = folder.path().join(name);
            for (path, text) in entries {
                let path = state.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            StateLock::take(&state)
        };
        take("harmless", &[("config.json", "{}"), ("engine.log", ""), ("src/main.c", "")]).unwrap();
        let code = ("code/main.c", "");
        for (name, text) in [("lock", ""), ("meter.sqlite", "x"), ("cgroups.json", "[]")] {
            take(name, &[code, (name, text)]).unwrap();
        }
        let refused = |name: &str, entries: &[(&str, &str)]| {
            assert!(matches!(take(name, entries), Err(LockError::Foreign { .. })), "{name}");
        };
        refused("another lock", &[code, ("lock", "1234")]);
        refused("a folder as lock", &[code, ("lock/file", "")]);
        for name in SWEPT {
            refused(name, &[(&format!("{name}/file"), "")]);
        }
    }

    #[test]
    fn a_file_in_the_way_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        fs::write(&state, "").unwrap();
        assert!(matches!(StateLock::take(&state), Err(LockError::Create { .. })));
    }
}
