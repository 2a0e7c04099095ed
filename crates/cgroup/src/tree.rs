//! Clearing whole trees of groups.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::files::write_if_present;
use crate::{Error, Version, delegation};

/// How long a group may take to become empty after its processes were killed. Large address spaces
/// take some hundred ms to be torn down on a busy machine.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(5);

/// Between two looks at whether a group is empty.
const EMPTY_POLL: Duration = Duration::from_millis(2);

/// The groups below `folder`; none if it does not exist.
///
/// # Errors
/// The folder cannot be listed.
pub fn children(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |error| Error::Read(folder.to_owned(), error);
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut children = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_dir() {
            children.push(entry.path());
        }
    }
    Ok(children)
}

/// The processes in a group. The kernel gives those of other process namespaces as 0.
pub(crate) fn processes(folder: &Path) -> Vec<i32> {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// Lets a group run, whichever version it is of; a folder without a freezer is left alone.
fn thaw(folder: &Path) {
    for version in [Version::V1, Version::V2] {
        let (file, value) = version.interface().freezer(false);
        // Failing means that the group is going away, which is what the caller is after.
        let _ = write_if_present(&folder.join(file), value);
    }
}

/// Lets a group and those below it run.
///
/// # Errors
/// A folder cannot be listed.
pub fn thaw_tree(folder: &Path) -> Result<(), Error> {
    thaw(folder);
    children(folder)?.iter().try_for_each(|child| thaw_tree(child))
}

/// Kills what is in a group and in those below it, and removes them; then undoes what was done to
/// the group above so that this one had controllers ([`delegation`]). Blocks until all is gone. On
/// version 1, what the tree of the freezer holds must have been thawed.
///
/// # Errors
/// Processes do not end, or a group cannot be listed or removed.
pub fn clear_tree(folder: &Path) -> Result<(), Error> {
    let (records, groups): (Vec<_>, Vec<_>) =
        children(folder)?.into_iter().partition(|child| delegation::is_record(child));
    groups.iter().try_for_each(|child| clear_tree(child))?;
    kill_all(folder)?;
    // Last, so that what is interrupted can be done again.
    if !records.is_empty() {
        delegation::undo(folder, &records)?;
    }
    remove(folder)
}

/// Kills every process of a group and waits until it has none.
pub(crate) fn kill_all(folder: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + EMPTY_TIMEOUT;
    loop {
        // Thawed each time: on version 1 a frozen process does not die of SIGKILL.
        thaw(folder);
        let left: Vec<_> = processes(folder).into_iter().filter(|pid| *pid > 0).collect();
        if left.is_empty() {
            return Ok(());
        }
        for pid in left {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if Instant::now() > deadline {
            return Err(Error::Alive(folder.to_owned()));
        }
        thread::sleep(EMPTY_POLL);
    }
}

/// Removes a group whose processes have ended; none is fine. The kernel says EBUSY for a moment
/// after they have.
pub(crate) fn remove(folder: &Path) -> Result<(), Error> {
    let deadline = Instant::now() + EMPTY_TIMEOUT;
    loop {
        match fs::remove_dir(folder) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error)
                if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline =>
            {
                thread::sleep(EMPTY_POLL);
            }
            Err(error) => return Err(Error::Remove(folder.to_owned(), error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn children_of_nothing_are_none() {
        let folder = tempfile::tempdir().unwrap();
        assert!(children(&folder.path().join("absent")).unwrap().is_empty());
        fs::create_dir(folder.path().join("child")).unwrap();
        fs::write(folder.path().join("tasks"), "").unwrap();
        assert_eq!(children(folder.path()).unwrap(), [folder.path().join("child")]);
        assert!(children(&folder.path().join("tasks")).is_err());
    }

    #[test]
    fn a_tree_is_thawed_and_then_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (top, below) = (folder.path().join("top"), folder.path().join("top/below"));
        fs::create_dir_all(&below).unwrap();
        fs::write(top.join("freezer.state"), "FROZEN").unwrap();
        fs::write(below.join("cgroup.freeze"), "1").unwrap();
        thaw_tree(&top).unwrap();
        assert_eq!(fs::read_to_string(top.join("freezer.state")).unwrap(), "THAWED");
        assert_eq!(fs::read_to_string(below.join("cgroup.freeze")).unwrap(), "0");
        // The files of a control group go with it; those of a plain folder do not.
        fs::remove_file(below.join("cgroup.freeze")).unwrap();
        let error = clear_tree(&top).unwrap_err().to_string();
        assert!(error.contains("cannot remove") && error.contains("top"), "{error}");
        assert!(!below.exists());
        fs::remove_file(top.join("freezer.state")).unwrap();
        clear_tree(&top).unwrap();
        assert!(!top.exists());
        clear_tree(&top).unwrap();
    }

    #[test]
    fn what_is_in_a_group_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let procs = folder.path().join("cgroup.procs");
        fs::write(&procs, format!("0\n{}\n", child.id())).unwrap();
        let cleared = thread::scope(|scope| {
            let cleared = scope.spawn(|| kill_all(folder.path()));
            let ended = child.wait().unwrap();
            assert_eq!(ended.signal(), Some(Signal::SIGKILL as i32));
            // What the kernel does.
            fs::write(&procs, "").unwrap();
            cleared.join().unwrap()
        });
        cleared.unwrap();
    }
}
