//! One worker per state folder.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

/// Why a state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("the state folder {path} cannot be made: {source}")]
    Create { path: PathBuf, source: io::Error },
    #[error("the state folder {path} is not writable: {source}")]
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
        fs::DirBuilder::new()
            .recursive(true)
            // Instances may run as another user, and reach their code below this folder.
            .mode(0o755)
            .create(state)
            .map_err(|source| LockError::Create { path: state.to_owned(), source })?;
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(state.join("lock"))
            .map_err(|source| LockError::Open { path: state.to_owned(), source })?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Self { _file: file }),
            Err((_, Errno::EWOULDBLOCK)) => Err(LockError::InUse(state.to_owned())),
            Err((_, errno)) => {
                Err(LockError::Open { path: state.to_owned(), source: errno.into() })
            }
        }
    }
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
    fn a_file_in_the_way_is_a_sentence() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        fs::write(&state, "").unwrap();
        assert!(matches!(StateLock::take(&state), Err(LockError::Create { .. })));
    }
}
