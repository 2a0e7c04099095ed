//! Copying into a root.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::RootError;
use super::sources::Sources;

/// Folders of a standard library that no function imports; most of its size.
const LEFT_OUT_FOLDERS: [&str; 8] = [
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
];

/// Beginnings of names of files and folders that are left out: build files and test modules.
const LEFT_OUT_PREFIXES: [&str; 5] = ["config-3", "_tkinter", "_test", "_ctypes_test", "xxlimited"];

/// Compilers' leftovers, and Python compiled for options that instances do not run with.
const LEFT_OUT_SUFFIXES: [&str; 4] = [".a", ".exe", ".opt-1.pyc", ".opt-2.pyc"];

/// Copies a file or folder, following links. Times are kept, because compiled Python files name the
/// time of their source; everybody may read the copy, because functions run as nobody in particular.
/// Whatever is copied is noted in `sources`.
pub(super) fn copy(from: &Path, to: &Path, sources: &mut Sources) -> Result<(), RootError> {
    let error = |source| RootError::Copy { from: from.to_owned(), source };
    // Before it is read, so that a change meanwhile is one.
    sources.add(from);
    let metadata = match fs::metadata(from) {
        Ok(metadata) => metadata,
        // A link to nowhere.
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(error(cause)),
    };
    if metadata.is_dir() {
        make_folder(to).map_err(error)?;
        for entry in fs::read_dir(from).map_err(error)? {
            let entry = entry.map_err(error)?;
            let is_folder = entry.path().is_dir();
            if !left_out(&entry.file_name(), is_folder) {
                copy(&entry.path(), &to.join(entry.file_name()), sources)?;
            }
        }
        return Ok(());
    }
    if !metadata.is_file() {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        make_folder(parent).map_err(error)?;
    }
    fs::copy(from, to).map_err(error)?;
    let mode = if metadata.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
    fs::set_permissions(to, Permissions::from_mode(mode)).map_err(error)?;
    let modified = metadata.modified().map_err(error)?;
    File::options()
        .append(true)
        .open(to)
        .and_then(|file| file.set_modified(modified))
        .map_err(error)
}

/// Whether a name in a standard library is not copied.
pub(super) fn left_out(name: &OsStr, is_folder: bool) -> bool {
    let name = name.to_string_lossy();
    is_folder && LEFT_OUT_FOLDERS.contains(&&*name)
        || LEFT_OUT_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || LEFT_OUT_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Makes a folder, and those above it, that everybody may enter.
pub(super) fn make_folder(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_folder(parent)?;
    }
    fs::create_dir(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

/// Lets everybody read whatever is there, and run what its owner may, whatever the umask was.
pub(super) fn open_to_all(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    let all = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
    if mode & 0o777 != all {
        fs::set_permissions(path, Permissions::from_mode(all))?;
    }
    if metadata.is_dir() {
        for entry in fs::read_dir(path)? {
            open_to_all(&entry?.path())?;
        }
    }
    Ok(())
}

pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(0o644))
}

/// How many files a folder has below it, and of how many bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Contents {
    files: u64,
    bytes: u64,
}

/// Makes of a folder another with the same files: links to them, and no copies. Gives what they are.
pub(super) fn link(from: &Path, to: &Path) -> io::Result<Contents> {
    let mut contents = Contents::default();
    link_into(from, to, &mut contents)?;
    Ok(contents)
}

fn link_into(from: &Path, to: &Path, contents: &mut Contents) -> io::Result<()> {
    make_folder(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, from, to) = (entry.file_type()?, entry.path(), to.join(entry.file_name()));
        if kind.is_dir() {
            link_into(&from, &to, contents)?;
            continue;
        }
        contents.files += 1;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
        } else {
            contents.bytes += entry.metadata()?.len();
            fs::hard_link(&from, &to)?;
        }
    }
    Ok(())
}

/// Removes whatever is there.
pub(super) fn clear(path: &Path) -> io::Result<()> {
    let result = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Asks the kernel to read every file below `folder` into its cache. Only a hint.
pub(super) fn warm(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => warm(&entry.path()),
            Ok(kind) if kind.is_file() => {
                if let Ok(file) = File::open(entry.path()) {
                    // SAFETY: advice about an open descriptor; no memory is passed.
                    unsafe {
                        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_WILLNEED)
                    };
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn whatever_the_umask_was_everybody_may_read() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("file"), "").unwrap();
        for (path, closed) in [(inner.join("file"), 0o600), (inner.clone(), 0o700)] {
            fs::set_permissions(path, Permissions::from_mode(closed)).unwrap();
        }
        open_to_all(folder.path()).unwrap();
        assert_eq!((mode(&inner), mode(&inner.join("file"))), (0o755, 0o644));
    }

    #[test]
    fn a_copy_keeps_times_and_leaves_out_what_no_function_needs() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        fs::create_dir_all(from.join("test")).unwrap();
        fs::create_dir_all(from.join("json")).unwrap();
        fs::write(from.join("test/a.py"), "").unwrap();
        fs::write(from.join("_tkinter.so"), "").unwrap();
        fs::write(from.join("json/b.py"), "text").unwrap();
        fs::set_permissions(from.join("json/b.py"), Permissions::from_mode(0o600)).unwrap();
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options()
            .append(true)
            .open(from.join("json/b.py"))
            .unwrap()
            .set_modified(time)
            .unwrap();
        symlink("json/b.py", from.join("link.py")).unwrap();
        symlink("nowhere", from.join("dangling")).unwrap();
        let to = folder.path().join("to");
        let mut sources = Sources::new(String::new());
        copy(&from, &to, &mut sources).unwrap();
        assert!(sources.are_current(""));
        let metadata = fs::metadata(to.join("json/b.py")).unwrap();
        assert_eq!(metadata.modified().unwrap(), time);
        assert_eq!(metadata.permissions().mode() & 0o777, 0o644);
        assert!(fs::symlink_metadata(to.join("link.py")).unwrap().is_file());
        for name in ["test", "_tkinter.so", "dangling"] {
            assert!(!to.join(name).exists(), "{name}");
        }
        // Neither what is left out nor what Python compiles itself makes a difference.
        fs::write(from.join("test/a.py"), "other").unwrap();
        assert!(sources.are_current(""));
        fs::write(from.join("json/c.py"), "new").unwrap();
        assert!(!sources.are_current(""));
    }
}
