//! Clearing what an earlier worker with the same state folder left: it may have been killed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::Flock;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sha2::{Digest, Sha256};

use super::cgroup::{self, clear_tree, discover, thaw_tree, worker_name};
use super::init;
use super::kinds::is_zygote_of;

/// In the state folder: where the worker's control groups are, which depends on where it was started.
const RECORD: &str = "cgroups.json";

/// How long leftovers may take to end.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How long somebody who removes leftovers may hold their groups.
const CLEANING_TIMEOUT: Duration = Duration::from_secs(3);

const POLL: Duration = Duration::from_millis(5);

/// The name of the control groups of the worker that has this state folder, and of no other.
pub(super) fn parent_name(state: &Path) -> String {
    worker_name(&hex::encode(Sha256::digest(state.as_os_str().as_encoded_bytes())))
}

/// Shows other workers that these control groups are a living worker's, until it is dropped. The state
/// folder's lock does not, once somebody has removed the folder.
pub(super) fn hold(folders: &[PathBuf]) -> io::Result<Vec<Flock<File>>> {
    let mut held = Vec::new();
    for folder in folders {
        match hold_soon(folder) {
            Ok(lock) => held.push(lock),
            Err(Errno::EWOULDBLOCK) => {
                let message = format!("another process has the control group {}", folder.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
            // Where a folder cannot be locked, the state folder's lock has to do.
            Err(_) => {}
        }
    }
    Ok(held)
}

/// Holds a control group as soon as nobody removes what a dead worker left in it.
fn hold_soon(folder: &Path) -> Result<Flock<File>, Errno> {
    let deadline = Instant::now() + CLEANING_TIMEOUT;
    loop {
        match cgroup::hold(folder) {
            Err(Errno::EWOULDBLOCK) if Instant::now() < deadline => thread::sleep(POLL),
            held => return held,
        }
    }
}

/// Whether a living worker has this control group.
pub(super) fn is_held(folder: &Path) -> bool {
    matches!(hold_soon(folder), Err(Errno::EWOULDBLOCK))
}

/// Ends every process and removes every control group that the worker named `name` left.
pub(super) fn sweep(state: &Path, name: &str) -> io::Result<()> {
    let folders_of_name = || Some(discover(name, false)?.beside(name).folders());
    let guess = || folders_of_name().unwrap_or_default();
    let mut folders = recorded(state)?.unwrap_or_else(guess);
    // Never anything but a group of this name, whatever the record says.
    folders.retain(|folder| folder.file_name().is_some_and(|it| it == name));
    if folders.iter().any(|folder| is_held(folder)) {
        let message = "that worker still runs, though its state folder was removed; end it, or choose \
                       another folder";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
    }
    // On version 1 the freezer is a tree of its own, and what it holds frozen dies in no tree.
    for folder in &folders {
        thaw_tree(folder)?;
    }
    for folder in &folders {
        clear_tree(folder)?;
    }
    // First processes are in no group of ours, and end by themselves when their worker does; but a
    // frozen instance keeps its first process from ending until it was thawed, just now.
    end_first_processes(name)
}

/// Notes where the worker's control groups are, before any instance is in one.
pub(super) fn record(state: &Path, folders: &[PathBuf]) -> io::Result<()> {
    let mut all = recorded(state)?.unwrap_or_default();
    all.extend(folders.iter().cloned());
    all.sort();
    all.dedup();
    all.retain(|folder| folder.exists());
    let temporary = state.join(format!("{RECORD}.new"));
    fs::write(&temporary, serde_json::to_vec(&all)?)?;
    fs::rename(temporary, state.join(RECORD))
}

/// What the record says; `None` if it is damaged, or not there: the state folder may have been removed.
fn recorded(state: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let path = state.join(RECORD);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let folders = serde_json::from_slice(&text);
    if let Err(error) = &folders {
        tracing::warn!(
            path = %path.display(),
            "the record of control groups is damaged ({error}); what an earlier worker left is \
             looked for where this one makes its groups"
        );
    }
    Ok(folders.ok())
}

/// What `ps` shows of an instance's first process after its name and the hidden subcommand.
pub(super) fn label(name: &str, instance: &str) -> String {
    format!("{name}/{instance}")
}

fn end_first_processes(name: &str) -> io::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let left = first_processes(name)?;
        if left.is_empty() {
            return Ok(());
        }
        for pid in left {
            // It may have ended meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if Instant::now() > deadline {
            let message = "instances of an earlier worker do not end";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        thread::sleep(POLL);
    }
}

fn first_processes(name: &str) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse().ok()) else { continue };
        // Gone already, or a zombie, which has no arguments.
        let Ok(arguments) = fs::read(entry.path().join("cmdline")) else { continue };
        // A zygote shows a runtime's arguments, since its copies do.
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        if is_first_process(&arguments, name) || is_zygote_of(name, &environment) {
            found.push(pid);
        }
    }
    Ok(found)
}

fn is_first_process(arguments: &[u8], name: &str) -> bool {
    let mut arguments = arguments.split(|byte| *byte == 0).skip(1);
    arguments.next() == Some(init::ARGUMENT.as_bytes())
        && arguments.next().is_some_and(|label| {
            label.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_first_processes_are_meant() {
        let one = parent_name(Path::new("/a"));
        let other = parent_name(Path::new("/b"));
        assert_ne!(one, other);
        let arguments = format!("uncia-instance\0__instance\0{}\0", label(&one, "i-1"));
        assert!(is_first_process(arguments.as_bytes(), &one));
        assert!(!is_first_process(arguments.as_bytes(), &other));
        let server = format!("uncia-engine\0serve\0{one}/x\0");
        assert!(!is_first_process(server.as_bytes(), &one));
    }

    #[test]
    fn a_record_adds_up_and_forgets_what_is_gone() {
        let state = tempfile::tempdir().unwrap();
        let folders: Vec<_> = ["x", "y"].iter().map(|name| state.path().join(name)).collect();
        for folder in &folders {
            fs::create_dir(folder).unwrap();
        }
        record(state.path(), &folders[..1]).unwrap();
        record(state.path(), &folders[1..]).unwrap();
        assert_eq!(recorded(state.path()).unwrap().unwrap(), folders);
        fs::remove_dir(&folders[0]).unwrap();
        record(state.path(), &[]).unwrap();
        assert_eq!(recorded(state.path()).unwrap().unwrap(), folders[1..]);
    }

    #[test]
    fn a_damaged_record_is_no_error() {
        let state = tempfile::tempdir().unwrap();
        for damage in [&b""[..], b"[\"/sys/fs", b"{}", b"\xff\0"] {
            fs::write(state.path().join(RECORD), damage).unwrap();
            sweep(state.path(), &parent_name(state.path())).unwrap();
            record(state.path(), &[state.path().to_owned()]).unwrap();
            assert_eq!(recorded(state.path()).unwrap().unwrap(), [state.path()]);
        }
    }

    #[test]
    fn a_record_cannot_point_the_sweep_elsewhere() {
        let state = tempfile::tempdir().unwrap();
        let precious = state.path().join("precious");
        fs::create_dir(&precious).unwrap();
        fs::write(precious.join("file"), "").unwrap();
        record(state.path(), std::slice::from_ref(&precious)).unwrap();
        sweep(state.path(), &parent_name(state.path())).unwrap();
        assert!(precious.join("file").exists());
    }
}
