//! Folders of the state folder, with permissions that do not depend on the umask.
//!
//! Instances may run as other users and reach their code by its path: what lies above it can be
//! entered by everybody and listed by the owner alone. Everything else is the owner's.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use nix::unistd::geteuid;
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

/// A folder on the way to what instances read.
pub(super) const PASSABLE: u32 = 0o711;
/// A folder that instances read.
pub(super) const READABLE: u32 = 0o755;
/// A folder that no other user has any business in.
pub(super) const PRIVATE: u32 = 0o700;

/// Who else may list or change the contents of a folder.
const OTHERS_LIST_OR_WRITE: u32 = 0o066;
/// A folder in which everybody keeps files, such as `/tmp`.
const STICKY: u32 = 0o1000;

/// Makes a folder, and those above it that are missing, with these permissions; a folder that is
/// there keeps its own.
pub(super) fn make(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        make(parent, mode)?;
    }
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Makes a folder of the state folder; one that is there gets these permissions too.
pub(super) fn ensure(path: &Path, mode: u32) -> io::Result<()> {
    make(path, mode)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Has ext4 put the folders that are made in this one apart, each into a group of blocks of its own choice. Without a
/// journal it does not give out the inodes of files that were removed within the last minute, but looks at each of
/// them for each file that is made in the same group: a tree of 6,000 files that replaces another took 5.5 s of CPU
/// time, and takes 0.4. Other file systems may not know it.
pub(super) fn spread(path: &Path) {
    let Ok(folder) = fs::File::open(path) else { return };
    if let Ok(flags) = ioctl_getflags(&folder) {
        let _ = ioctl_setflags(&folder, flags | IFlags::TOPDIR);
    }
}

/// Makes the state folder itself. From one that is there, others lose the right to list it, unless
/// it is somebody else's or shared with everybody.
pub(super) fn ensure_state(path: &Path) -> io::Result<()> {
    make(path, PASSABLE)?;
    let metadata = fs::metadata(path)?;
    let mode = metadata.permissions().mode() & 0o7777;
    let restricted = mode & !OTHERS_LIST_OR_WRITE;
    if restricted == mode || mode & STICKY != 0 || metadata.uid() != geteuid().as_raw() {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(restricted))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_state_folder_can_be_entered_and_not_listed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("deep/state");
        ensure_state(&state).unwrap();
        assert_eq!((mode(&state), mode(state.parent().unwrap())), (PASSABLE, PASSABLE));
        for (before, after) in [(0o755, 0o711), (0o700, 0o700), (0o777, 0o711), (0o1777, 0o1777)] {
            fs::set_permissions(&state, Permissions::from_mode(before)).unwrap();
            ensure_state(&state).unwrap();
            assert_eq!(mode(&state), after, "{before:o}");
        }
    }

    #[test]
    fn a_folder_is_spread_where_the_file_system_knows_that() {
        let folder = tempfile::tempdir().unwrap();
        let flags = || ioctl_getflags(fs::File::open(folder.path()).unwrap());
        let is_ext4 = rustix::fs::statfs(folder.path()).unwrap().f_type == 0xef53;
        spread(folder.path());
        assert!(!is_ext4 || flags().unwrap().contains(IFlags::TOPDIR));
        spread(&folder.path().join("missing"));
    }
}
