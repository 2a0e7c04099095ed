//! Files that one instance has made and others start with, with their digests.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};

use super::checkpoint::Dumped;

/// Files that instances share. They are removed when nobody uses them any more.
pub(super) struct Kept {
    pub folder: PathBuf,
    /// By name, with what each looked like when its digest was last computed.
    files: Mutex<BTreeMap<OsString, (Vec<u8>, Stamp)>>,
    /// Set if they are a checkpoint.
    pub dumped: Option<Dumped>,
    /// Whether an instance has been restored from it and has become ready.
    pub is_proven: AtomicBool,
    /// On the disk.
    pub bytes: u64,
    /// When an instance last started with them, as the folder's uses are counted.
    pub used: AtomicU64,
}

/// What changes with whatever is done to a file: the kernel alone sets the last of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            inode: (metadata.dev(), metadata.ino()),
            size: metadata.size(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Kept {
    /// Takes the digests of what is in a folder, which is then this one's to remove. Waits.
    pub(super) fn of(folder: PathBuf, dumped: Option<Dumped>) -> io::Result<Self> {
        let mut files = BTreeMap::new();
        let mut bytes = 0;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let seen = Stamp::of(&entry.metadata()?);
            bytes += seen.size;
            files.insert(entry.file_name(), (digest(&entry.path())?, seen));
        }
        let (files, is_proven) = (Mutex::new(files), AtomicBool::new(false));
        Ok(Self { folder, files, dumped, is_proven, bytes, used: AtomicU64::new(0) })
    }

    /// Whether all files are as they were written. Waits, where somebody has touched them.
    pub(super) fn is_whole(&self) -> bool {
        self.files().iter_mut().all(|(name, (written, seen))| {
            let path = self.folder.join(name);
            let Ok(found) = fs::symlink_metadata(&path) else { return false };
            let whole = *seen == Stamp::of(&found)
                || found.is_file() && digest(&path).is_ok_and(|digest| digest == *written);
            if whole {
                *seen = Stamp::of(&found);
            }
            whole
        })
    }

    /// The files' names.
    pub(super) fn names(&self) -> Vec<OsString> {
        self.files().keys().cloned().collect()
    }

    /// Does what changes nothing of a file but what the kernel notes about it, such as to link it elsewhere.
    pub(super) fn touch(
        &self,
        name: &OsStr,
        touch: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = self.folder.join(name);
        let mut files = self.files();
        let Some((_, seen)) = files.get_mut(name) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let was_whole = Stamp::of(&fs::symlink_metadata(&path)?) == *seen;
        touch(&path)?;
        if was_whole {
            *seen = Stamp::of(&fs::symlink_metadata(&path)?);
        }
        Ok(())
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<OsString, (Vec<u8>, Stamp)>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // What stays is removed by the next worker.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn digest(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, mut hash) = (File::open(path)?, Sha256::new());
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hash.finalize().to_vec()),
            count => hash.update(&piece[..count]),
        }
    }
}

/// A folder that is removed unless it is kept.
pub(super) struct Place(pub(super) PathBuf);

impl Place {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Keeps what is in it by now.
    pub(super) fn keep(mut self, dumped: Option<Dumped>) -> Result<Kept, String> {
        let kept = Kept::of(self.0.clone(), dumped).map_err(|error| error.to_string())?;
        self.0 = PathBuf::new();
        Ok(kept)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            // What stays is removed by the next worker.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
