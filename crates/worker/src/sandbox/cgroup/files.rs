//! Reading and writing control files, and clearing whole groups.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{CgroupError, Version};

/// How long a group may take to become empty after its processes were killed. Large address spaces
/// take some hundred ms to be torn down on a busy machine.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks at whether a group is empty.
const EMPTY_POLL: Duration = Duration::from_millis(2);

/// Longest control file that is read; `memory.stat`, the longest, has about 4 KiB.
const MAX_CONTROL_FILE: usize = 8 * 1024;

pub fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    // A control file is there or it is not supported; only tests on plain folders make one.
    let result = File::options()
        .write(true)
        .create(cfg!(test))
        .truncate(cfg!(test))
        .open(path)
        .and_then(|mut file| file.write_all(value.as_bytes()));
    result.map_err(|source| CgroupError::Write {
        path: path.to_owned(),
        value: value.to_owned(),
        source,
    })
}

pub fn read(path: &Path) -> Result<String, CgroupError> {
    fs::read_to_string(path).map_err(|error| CgroupError::Read(path.to_owned(), error))
}

/// Reads a control file from its start through a kept descriptor, and hands its text over.
pub fn pread<T>(file: &File, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    let mut buffer = [0_u8; MAX_CONTROL_FILE];
    let count = file.read_at(&mut buffer, 0).ok()?;
    parse(std::str::from_utf8(&buffer[..count]).ok()?)
}

/// The number after `key` in a file of lines "key number".
pub fn keyed(text: &str, key: &str) -> Option<i64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The groups below `folder`; none if it does not exist.
pub fn list_children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            children.push(entry.path());
        }
    }
    Ok(children)
}

/// The processes (version 1: threads) in a group.
pub fn processes(folder: &Path) -> Vec<i32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()
}

/// Lets a group run, whichever version it is of; a folder without a freezer is left alone.
pub fn thaw_folder(folder: &Path) {
    for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        let path = folder.join(file);
        if path.exists() {
            // Failing means that the group is going away, which is what the caller is after.
            let _ = write(&path, value);
        }
    }
}

/// Kills every process of a group and waits until it has none.
pub fn kill_all(folder: &Path) -> io::Result<()> {
    let deadline = Instant::now() + EMPTY_TIMEOUT;
    loop {
        // Thawed each time: on version 1 a frozen process does not die of SIGKILL.
        thaw_folder(folder);
        let left = processes(folder);
        if left.is_empty() {
            return Ok(());
        }
        for pid in left {
            let pid = nix::unistd::Pid::from_raw(pid);
            // It may have ended meanwhile.
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
        if Instant::now() > deadline {
            let message = format!("processes in {} do not end", folder.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(EMPTY_POLL);
    }
}

/// Removes a group whose processes have ended. The kernel says EBUSY for a moment after that.
pub fn remove(folder: &Path) -> Result<(), CgroupError> {
    let deadline = Instant::now() + EMPTY_TIMEOUT;
    loop {
        match fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A plain folder of a test has files.
            Err(_) if cfg!(test) => {
                return fs::remove_dir_all(folder)
                    .map_err(|error| CgroupError::Remove(folder.to_owned(), error));
            }
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline =>
            {
                thread::sleep(EMPTY_POLL);
            }
            Err(error) => return Err(CgroupError::Remove(folder.to_owned(), error)),
        }
    }
}

/// Lets a group and those below it run.
pub fn thaw_tree(folder: &Path) -> io::Result<()> {
    thaw_folder(folder);
    list_children(folder)?.iter().try_for_each(|child| thaw_tree(child))
}

/// Kills what is in a group and in those below it, and removes them all. On version 1, what the tree
/// of the freezer holds must have been thawed.
pub fn remove_tree(folder: &Path) -> io::Result<()> {
    for child in list_children(folder)? {
        remove_tree(&child)?;
    }
    if folder.exists() {
        kill_all(folder)?;
        remove(folder).map_err(io::Error::other)?;
    }
    Ok(())
}

/// The file by which a process joins a group. On version 1, moving by `cgroup.procs` waits for a
/// lock that every fork on the machine takes (tens of ms at worst); `tasks` moves one thread, which
/// is all that a process has before exec.
pub fn join_file(version: Version) -> &'static str {
    match version {
        Version::V1 => "tasks",
        Version::V2 => "cgroup.procs",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyed_numbers_need_the_whole_key() {
        let text = "nr_periods 10\nnr_throttled 3\nthrottled_time 12345\n";
        assert_eq!(keyed(text, "nr_throttled"), Some(3));
        assert_eq!(keyed(text, "throttled_time"), Some(12345));
        assert_eq!(keyed(text, "nr"), None);
        assert_eq!(keyed(text, "throttled"), None);
    }

    #[test]
    fn children_of_nothing_are_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(list_children(&folder.path().join("absent")).unwrap().is_empty());
        fs::create_dir(folder.path().join("child")).unwrap();
        fs::write(folder.path().join("tasks"), "").unwrap();
        assert_eq!(list_children(folder.path()).unwrap(), [folder.path().join("child")]);
    }
}
