//! One worker per state folder.

use std::fs::{File, Permissions};
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
        "the state folder {0} is in use by another worker; stop that one, or choose another folder"
    )]
    InUse(PathBuf),
}

/// Holds the state folder until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub struct StateLock {
    _file: Flock<File>,
}

impl StateLock {
    /// Makes the state folder if need be, and takes its lock.
    pub fn take(state: &Path) -> Result<Self, LockError> {
        let not_writable = |source| LockError::Open { path: state.to_owned(), source };
        folders::ensure_state(state).map_err(|source| match state.is_dir() {
            true => not_writable(source),
            false => LockError::Create { path: state.to_owned(), source },
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

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn a_file_in_the_way_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        fs::write(&state, "").unwrap();
        assert!(matches!(StateLock::take(&state), Err(LockError::Create { .. })));
    }
}
