//! The kernel's notices that the memory of a group runs short.
//!
//! | version | notice |
//! |---|---|
//! | 1 | an eventfd each for `memory.usage_in_bytes` crossing the bound, and for `memory.oom_control` |
//! | 2 | `memory.events`, where reaching `memory.high` is counted, and a trigger of `memory.pressure` (PSI) |
//!
//! On version 2 `memory.high` slows down whoever allocates beyond it, so it is set for the notice alone: once
//! that has come it is lifted ([`MemoryNotices::hush`]), until less is in use ([`MemoryNotices::arm`]).

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::files::{keyed, number, pread, write};
use crate::{Error, Version};

/// A notice of stalls: 100 ms in 2 s, the shortest window that is open to all users.
const STALLS: &str = "some 100000 2000000";

/// The keys of what the kernel can have again without anybody's end, in `memory.stat` of either version.
const FILE_KEYS_V1: [&str; 2] = ["total_inactive_file", "total_active_file"];
const FILE_KEYS_V2: [&str; 2] = ["inactive_file", "active_file"];

/// Why [`MemoryNotices::wait`] has returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Notice {
    /// The bound was crossed, or allocations stall.
    pub is_short: bool,
    /// A bound of the group, or of one that it is in, left no memory at all.
    pub is_out_of_memory: bool,
}

/// Tells when a group and all below it use more than a bound.
#[derive(Debug)]
pub struct MemoryNotices {
    usage: File,
    stat: File,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    V1 {
        crossed: EventFd,
        out_of_memory: EventFd,
    },
    V2 {
        events: File,
        above: Vec<File>,
        stalls: Option<File>,
        high: PathBuf,
        bound: u64,
        ooms: AtomicI64,
    },
}

impl MemoryNotices {
    /// Asks for notices of the group in this folder, of the memory controller's tree.
    ///
    /// # Errors
    /// The kernel has no such notices, or refuses them.
    pub fn open(version: Version, folder: &Path, bound: u64) -> Result<Self, Error> {
        let open = |name: &str| {
            let path = folder.join(name);
            File::open(&path).map_err(|error| Error::Read(path, error))
        };
        let usage = open(version.interface().counter_files().memory)?;
        let kind = match version {
            Version::V1 => {
                let crossed = register(folder, &usage, &bound.to_string())?;
                let control = open("memory.oom_control")?;
                Kind::V1 { crossed, out_of_memory: register(folder, &control, "")? }
            }
            Version::V2 => {
                let events = open("memory.events")?;
                let above = local_events(folder);
                let ooms = count_ooms(&above);
                let high = folder.join("memory.high");
                write(&high, &bound.to_string())?;
                // A kernel without PSI counts the events all the same.
                let stalls = stall_trigger(&folder.join("memory.pressure")).ok();
                Kind::V2 { events, above, stalls, high, bound, ooms: ooms.into() }
            }
        };
        Ok(Self { usage, stat: open("memory.stat")?, kind })
    }

    /// Waits for a notice, until `wake` can be read, or for so long.
    ///
    /// # Errors
    /// The kernel cannot wait for it.
    pub fn wait(&self, wake: BorrowedFd<'_>, limit: Option<Duration>) -> Result<Notice, Errno> {
        let timeout = limit.map_or(PollTimeout::NONE, |limit| {
            PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX)
        });
        match &self.kind {
            Kind::V1 { crossed, out_of_memory } => {
                let mut files = [
                    PollFd::new(wake, PollFlags::POLLIN),
                    PollFd::new(crossed.as_fd(), PollFlags::POLLIN),
                    PollFd::new(out_of_memory.as_fd(), PollFlags::POLLIN),
                ];
                again(|| poll(&mut files, timeout))?;
                // Reading it sets the count back; there is none if nothing was told.
                Ok(Notice {
                    is_short: crossed.read().is_ok(),
                    is_out_of_memory: out_of_memory.read().is_ok(),
                })
            }
            Kind::V2 { events, above, stalls, ooms, .. } => {
                let mut files = vec![
                    PollFd::new(wake, PollFlags::POLLIN),
                    PollFd::new(events.as_fd(), PollFlags::POLLPRI),
                ];
                let others = above.iter().chain(stalls);
                files.extend(others.map(|it| PollFd::new(it.as_fd(), PollFlags::POLLPRI)));
                again(|| poll(&mut files, timeout))?;
                let told = |file: &PollFd<'_>| {
                    file.revents().is_some_and(|it| it.contains(PollFlags::POLLPRI))
                };
                let is_short = files[1..].iter().any(told);
                // Read each time, which makes the next change the next notice.
                let _ = pread(events, |text| keyed::<i64>(text, "high"));
                let count = count_ooms(above);
                let is_out_of_memory = ooms.swap(count, Ordering::Relaxed) < count;
                Ok(Notice { is_short, is_out_of_memory })
            }
        }
    }

    /// Bytes that the group and all below it use.
    #[must_use]
    pub fn usage(&self) -> Option<u64> {
        pread(&self.usage, number)
    }

    /// Bytes of these that the kernel can have again: what it keeps of files.
    #[must_use]
    pub fn of_files(&self) -> Option<u64> {
        let keys = match self.kind {
            Kind::V1 { .. } => FILE_KEYS_V1,
            Kind::V2 { .. } => FILE_KEYS_V2,
        };
        pread(&self.stat, |text| sum(text, keys))
    }

    /// Slows nobody down any more for the notice's sake.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn hush(&self) -> Result<(), Error> {
        match &self.kind {
            Kind::V1 { .. } => Ok(()),
            Kind::V2 { high, .. } => write(high, "max"),
        }
    }

    /// Has the bound be told again, after [`Self::hush`].
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn arm(&self) -> Result<(), Error> {
        match &self.kind {
            Kind::V1 { .. } => Ok(()),
            Kind::V2 { high, bound, .. } => write(high, &bound.to_string()),
        }
    }
}

/// Version 2: what happened by the bounds of the group itself, and of those that it is in, as far as they
/// are seen from here: what `memory.events` counts is of all below, of instances that meet their own bounds.
fn local_events(folder: &Path) -> Vec<File> {
    let files = folder.ancestors().map(|it| File::open(it.join("memory.events.local")));
    files.map_while(Result::ok).collect()
}

fn count_ooms(files: &[File]) -> i64 {
    files.iter().filter_map(|file| pread(file, |text| keyed::<i64>(text, "oom"))).sum()
}

/// Version 1: an eventfd that is told of a control file's event.
fn register(folder: &Path, file: &File, argument: &str) -> Result<EventFd, Error> {
    let path = folder.join("cgroup.event_control");
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let event = EventFd::from_value_and_flags(0, flags)
        .map_err(|errno| Error::Read(path.clone(), errno.into()))?;
    let line = format!("{} {} {argument}", event.as_fd().as_raw_fd(), file.as_raw_fd());
    write(&path, line.trim_end())?;
    Ok(event)
}

/// Version 2: a file that is told when allocations stall.
fn stall_trigger(path: &Path) -> std::io::Result<File> {
    let mut file = File::options().read(true).write(true).open(path)?;
    // With its zero, as the kernel's documentation has it.
    file.write_all(format!("{STALLS}\0").as_bytes())?;
    Ok(file)
}

/// The sum of the numbers after these keys.
fn sum(text: &str, keys: [&str; 2]) -> Option<u64> {
    keys.into_iter().map(|key| keyed::<u64>(text, key)).sum()
}

/// Repeats a call that a signal has interrupted.
fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Option<Duration> = Some(Duration::from_millis(1));

    #[test]
    fn what_is_kept_of_files_is_summed_by_version() {
        let text = "cache 9\nrss 100\ninactive_file 5\nactive_file 7\n\
                    total_inactive_file 50\ntotal_active_file 70\n";
        assert_eq!(sum(text, FILE_KEYS_V1), Some(120));
        assert_eq!(sum(text, FILE_KEYS_V2), Some(12));
        assert_eq!(sum("inactive_file 5\n", FILE_KEYS_V2), None);
    }

    /// Plain files in place of a group of version 2: what is written, and what is read.
    #[test]
    fn version_2_sets_a_bound_for_the_notice_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let put = |name: &str, text: &str| std::fs::write(path(name), text).unwrap();
        let read = |name: &str| std::fs::read_to_string(path(name)).unwrap();
        put("memory.current", "4096\n");
        put("memory.stat", "anon 4\ninactive_file 1\nactive_file 2\n");
        put("memory.events", "low 0\nhigh 3\nmax 0\noom 1\noom_kill 1\n");
        let open = || MemoryNotices::open(Version::V2, folder.path(), 1 << 20);
        let sentence = open().unwrap_err().to_string();
        assert!(sentence.contains("memory.high"), "{sentence}");
        put("memory.high", "max\n");
        put("memory.pressure", "");
        put("memory.events.local", "low 0\nhigh 3\nmax 0\noom 0\noom_kill 0\n");
        let notices = open().unwrap();
        assert_eq!(read("memory.high"), "1048576");
        assert_eq!(read("memory.pressure"), format!("{STALLS}\0"));
        assert_eq!((notices.usage(), notices.of_files()), (Some(4096), Some(3)));
        let wake = EventFd::new().unwrap();
        assert!(!notices.wait(wake.as_fd(), WAIT).unwrap().is_out_of_memory);
        // An instance below has met its own bound.
        put("memory.events", "low 0\nhigh 4\nmax 0\noom 2\noom_kill 1\n");
        assert!(!notices.wait(wake.as_fd(), WAIT).unwrap().is_out_of_memory);
        put("memory.events.local", "low 0\nhigh 4\nmax 0\noom 1\noom_kill 0\n");
        assert!(notices.wait(wake.as_fd(), WAIT).unwrap().is_out_of_memory);
        assert!(!notices.wait(wake.as_fd(), WAIT).unwrap().is_out_of_memory);
        notices.hush().unwrap();
        assert_eq!(read("memory.high"), "max");
        notices.arm().unwrap();
        assert_eq!(read("memory.high"), "1048576");
    }

    #[test]
    fn a_kernel_without_notices_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for version in [Version::V1, Version::V2] {
            let sentence = MemoryNotices::open(version, folder.path(), 1).unwrap_err().to_string();
            assert!(sentence.contains("cannot read"), "{sentence}");
        }
    }
}
