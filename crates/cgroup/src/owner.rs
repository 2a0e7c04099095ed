//! Groups of which it can be told whether the process that made them lives, so that those of the dead can
//! be removed: probes' by their names, workers' by a lock.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::mounts::Tree;
use crate::tree::{children, clear_tree, thaw_tree};
use crate::{Error, Mounts};

/// What the names begin with; then the process that made the group, when that started (in ticks
/// since boot, so that a number given out again is told from it), the namespace in which it has
/// that number, and a number.
const PREFIX: &str = "uncia-probe-";

/// A name for a group of this process, which no other group has.
#[must_use]
pub fn own_name() -> String {
    own_name_with(PREFIX)
}

/// As [`own_name`], for what is made elsewhere than in trees of control groups.
#[must_use]
pub fn own_name_with(prefix: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let pid = process::id();
    let started = stat(pid).ok().and_then(|text| started(&text)).unwrap_or_default();
    let namespace = namespace().unwrap_or_default();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}{pid}-{started}-{namespace}-{number}")
}

/// Whether a folder is a group of [`own_name`] whose maker is gone. A maker in another namespace of
/// processes cannot be seen from here, so its groups are never taken for that.
#[must_use]
pub(crate) fn is_left(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    is_left_with(name, PREFIX)
}

/// Whether a name is of [`own_name_with`] that prefix, and its maker is gone.
#[must_use]
pub fn is_left_with(name: &str, prefix: &str) -> bool {
    let Some(fields) = name.strip_prefix(prefix) else { return false };
    let numbers: Option<Vec<u64>> = fields.split('-').map(|field| field.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[pid, at, within, _]) if namespace() == Some(within) => is_gone(pid, at),
        _ => false,
    }
}

/// What the names of workers' groups begin with; then [`WORKER_DIGITS`] that their state folder gives.
const WORKER_PREFIX: &str = "uncia-";
const WORKER_DIGITS: usize = 16;

/// How long a worker may take to hold a group that it has made.
const HOLD_TIMEOUT: Duration = Duration::from_secs(1);

/// The name of the groups of the worker whose state folder gives these hexadecimal digits.
///
/// # Panics
/// There are fewer than 16.
#[must_use]
pub fn worker_name(digits: &str) -> String {
    format!("{WORKER_PREFIX}{}", &digits[..WORKER_DIGITS])
}

/// Shows others that this process lives and has this group, until what is returned is dropped.
///
/// # Errors
/// `EWOULDBLOCK`: another living process has it.
pub fn hold(folder: &Path) -> Result<Flock<File>, Errno> {
    let file = File::open(folder)
        .map_err(|error| error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)
}

/// Whether a folder is a group of [`worker_name`].
fn is_workers(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(WORKER_PREFIX).is_some_and(|digits| {
        digits.len() == WORKER_DIGITS
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// Whether no living process holds a group.
fn is_free(folder: &Path) -> bool {
    hold(folder).is_ok()
}

/// A group whose maker is gone.
#[derive(Debug)]
pub struct Leftover {
    /// Its folder in the tree.
    pub folder: PathBuf,
    /// What became of it; `None` if it was only looked for.
    pub cleared: Option<Result<(), Error>>,
}

/// Finds such groups in every tree that is mounted, and removes them if asked to.
///
/// # Errors
/// `/proc` cannot be read.
pub fn leftovers(remove: bool) -> Result<Vec<Leftover>, Error> {
    let mut left = left(&Mounts::read()?.trees);
    let mut locks = Vec::new();
    if left.iter().any(|folder| is_workers(folder)) {
        thread::sleep(HOLD_TIMEOUT);
        left.retain(|folder| !is_workers(folder) || hold(folder).map(|it| locks.push(it)).is_ok());
    }
    if !remove {
        // A worker that begins meanwhile waits until what it finds is removed; here nothing is.
        locks.clear();
    }
    if remove {
        // On version 1 the freezer is a tree of its own, and what it holds frozen dies in no tree.
        left.iter().try_for_each(|folder| thaw_tree(folder))?;
    }
    let cleared = |folder: &Path| remove.then(|| clear_tree(folder));
    Ok(left.into_iter().map(|folder| Leftover { cleared: cleared(&folder), folder }).collect())
}

/// The groups in the mounted trees whose maker is gone, each once.
///
/// Folders that cannot be listed are passed over: what is below them is not this user's.
fn left(trees: &[Tree]) -> Vec<PathBuf> {
    let (mut left, mut seen) = (Vec::new(), HashSet::new());
    let mut waiting: Vec<_> = trees.iter().map(|tree| tree.mount.clone()).collect();
    while let Some(folder) = waiting.pop() {
        for child in children(&folder).unwrap_or_default() {
            let has_no_maker = is_left(&child) || is_workers(&child) && is_free(&child);
            if !has_no_maker {
                waiting.push(child);
                continue;
            }
            // A tree may be mounted in several places.
            if fs::metadata(&child).is_ok_and(|it| seen.insert((it.dev(), it.ino()))) {
                left.push(child);
            }
        }
    }
    left.sort();
    left
}

/// Whether the process that had this number and started at this tick is gone. One that has ended
/// and that nobody has waited for is.
fn is_gone(pid: u64, at: u64) -> bool {
    let Ok(number) = i32::try_from(pid) else { return true };
    match stat(number.unsigned_abs()) {
        Ok(text) => has_ended(&text) || started(&text).is_some_and(|now| now != at),
        // `hidepid` hides the processes of others, but not that there are some.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            kill(Pid::from_raw(number), None) == Err(Errno::ESRCH)
        }
        Err(_) => false,
    }
}

fn stat(pid: u32) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/stat"))
}

/// When a process started, in ticks since boot: field 22 of `/proc/PID/stat`.
fn started(stat: &str) -> Option<u64> {
    fields(stat).nth(19)?.parse().ok()
}

fn has_ended(stat: &str) -> bool {
    fields(stat).next().is_some_and(|state| matches!(state, "Z" | "X"))
}

/// The fields from the third on. The second, the name in parentheses, may have spaces.
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// The namespace of processes that this process is in.
fn namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|it| it.ino())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn name(pid: u32, at: u64, within: u64) -> PathBuf {
        format!("{PREFIX}{pid}-{at}-{within}-0").into()
    }

    #[test]
    fn a_group_is_left_when_its_maker_is_gone() {
        let within = namespace().unwrap();
        let started_at = |pid| started(&stat(pid).unwrap()).unwrap();
        assert!(!is_left(Path::new(&own_name())));
        assert_ne!(own_name(), own_name());
        // The number was given out again.
        assert!(is_left(&name(process::id(), started_at(process::id()) + 1, within)));

        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let of_child = name(child.id(), started_at(child.id()), within);
        assert!(!is_left(&of_child));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_left(&of_child));
        let file = of_child.file_name().unwrap().to_str().unwrap();
        assert!(!is_left(&name(child.id(), 0, within + 1)), "of another namespace");
        assert!(!is_left(Path::new(&format!("{file}-worker"))));
        assert!(!is_left(Path::new("uncia-probe-mine")));
        assert!(!is_left(Path::new("uncia-0123456789abcdef")));
    }

    #[test]
    fn one_that_nobody_has_waited_for_has_ended() {
        assert!(has_ended("7 (a ) Z) Z 1 7"));
        assert!(!has_ended("7 (a Z) S 1 7"));
    }

    #[test]
    fn left_groups_are_found_wherever_they_are_and_once() {
        let top = tempfile::tempdir().unwrap();
        let within = namespace().unwrap();
        let dead = top.path().join("user.slice/x").join(name(4_194_305, 1, within));
        fs::create_dir_all(dead.join("below")).unwrap();
        fs::create_dir(top.path().join("user.slice").join(own_name())).unwrap();
        let [held, free, other] =
            ["0123456789abcdef", "fedcba9876543210", "fedcba9876543210-worker"]
                .map(|digits| top.path().join(format!("{WORKER_PREFIX}{digits}")));
        for folder in [&held, &free, &other] {
            fs::create_dir(folder).unwrap();
        }
        let _held = hold(&held).unwrap();
        let mounted: String = ["", "user.slice", "absent"]
            .map(|at| {
                format!("1 0 0:1 / {} rw - cgroup2 cgroup rw\n", top.path().join(at).display())
            })
            .concat();
        assert_eq!(left(&Mounts::parse(&mounted, "", true).trees), [free, dead]);
    }
}
