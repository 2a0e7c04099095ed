//! Whether a process can have copies, as the kernel shows it from outside: nothing that the process says
//! of itself counts.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::sandbox::rootfs::TASK;

/// The standard streams, of which every copy has its own.
const STREAMS: [&str; 3] = ["0", "1", "2"];

/// The flag of memory that can be written to and is the same in all copies.
const SHARED: &str = "sh";
/// The flag of memory that a fork leaves out: `MADV_DONTFORK`.
const NOT_COPIED: &str = "dc";

/// The capabilities of which a copy has none, and what else its status must be.
const COPY_STATUS: [(&str, &str); 7] = [
    ("CapInh", "0000000000000000"),
    ("CapPrm", "0000000000000000"),
    ("CapEff", "0000000000000000"),
    ("CapBnd", "0000000000000000"),
    ("CapAmb", "0000000000000000"),
    ("NoNewPrivs", "1"),
    ("Threads", "1"),
];

fn folder(pid: i32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

/// `/proc/PID/status` by its keys.
pub(super) fn status(pid: i32) -> Result<HashMap<String, String>, Errno> {
    let text = fs::read_to_string(folder(pid).join("status")).map_err(|error| errno(&error))?;
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    Ok(fields.map(|(key, value)| (key.to_owned(), value.trim().to_owned())).collect())
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}

/// The number of a process in its own namespace.
pub(super) fn own_number(pid: i32) -> Option<i32> {
    status(pid).ok()?.get("NSpid")?.split_whitespace().next_back()?.parse().ok()
}

/// The number of the process that a descriptor means.
pub(super) fn number_of(process: &OwnedFd) -> Option<i32> {
    let path = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

/// What keeps a process from having copies, as the end of a sentence about its import; `first` is the
/// first process of its sandbox.
pub(super) fn obstacle(pid: i32, first: i32) -> io::Result<Option<String>> {
    let threads = fs::read_dir(folder(pid).join("task"))?.count();
    if threads > 1 {
        return Ok(Some(format!("it has started {} threads", threads - 1)));
    }
    let others = children(pid)?.len() + children(first)?.iter().filter(|it| **it != pid).count();
    if others > 0 {
        return Ok(Some(format!("it has left {others} processes")));
    }
    if let Some(open) = open_file(pid)? {
        return Ok(Some(open));
    }
    let maps = fs::read_to_string(folder(pid).join("smaps"))?;
    if has_memory(&maps, SHARED) {
        return Ok(Some("it has made memory that its copies would share".into()));
    }
    if has_memory(&maps, NOT_COPIED) {
        return Ok(Some("it has made memory that its copies would lack".into()));
    }
    let root = folder(pid).join("root");
    if fs::read_dir(root.join("tmp"))?.next().is_some() {
        return Ok(Some("it has left files in /tmp, which its copies would lack".into()));
    }
    let identity = |path: PathBuf| fs::metadata(path).map(|it| (it.dev(), it.ino()));
    if identity(folder(pid).join("cwd"))? != identity(root.join(&TASK[1..]))? {
        return Ok(Some(format!("it has left the folder {TASK}")));
    }
    Ok(None)
}

fn children(pid: i32) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(folder(pid).join(format!("task/{pid}/children")))?;
    Ok(text.split_whitespace().filter_map(|it| it.parse().ok()).collect())
}

/// A descriptor beside the standard streams.
fn open_file(pid: i32) -> io::Result<Option<String>> {
    for entry in fs::read_dir(folder(pid).join("fd"))? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| STREAMS.contains(&name)) {
            continue;
        }
        let target = fs::read_link(entry.path())?;
        let target = target.to_string_lossy();
        return Ok(Some(if target.starts_with("socket:") {
            "it has opened a socket".into()
        } else {
            // The name is the function's, and for a log of one line.
            let name: String = target.chars().filter(|it| !it.is_control()).take(80).collect();
            format!("it has left a file open ({name})")
        }));
    }
    Ok(None)
}

/// Whether any of a process's memory has a flag, as `/proc/PID/smaps` shows it.
fn has_memory(maps: &str, wanted: &str) -> bool {
    let flags = maps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
    flags.into_iter().any(|flags| flags.split_whitespace().any(|flag| flag == wanted))
}

/// Checks that a copy, which is about to run the function, has no right that a function does not have.
pub(super) fn check_copy(pid: i32, filter: bool) -> Result<(), String> {
    let status = status(pid).map_err(|error| format!("cannot read its status: {error}"))?;
    let filter = [("Seccomp", "2")].into_iter().filter(|_| filter);
    for (key, wanted) in COPY_STATUS.into_iter().chain(filter) {
        let found = status.get(key).map_or("nothing", String::as_str);
        if found != wanted {
            return Err(format!("its {key} is {found}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_found_by_its_flag_alone() {
        let maps =
            |flags: &str| format!("7f00-7f01 rw-s 0 0:1 7 /dev/zero (sh)\nVmFlags: {flags}\n");
        assert!(has_memory(&maps("rd wr sh mr mw me ms sd"), SHARED));
        // A file that was opened for reading, such as a table of the C library's.
        assert!(!has_memory(&maps("rd mr me ms sd"), SHARED));
        assert!(!has_memory("", SHARED));
    }

    #[test]
    fn a_process_with_threads_or_open_files_has_an_obstacle() {
        let own = std::process::id() as i32;
        let (wait, end) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || end.recv().is_err());
        let obstacle = obstacle(own, own).unwrap().unwrap();
        assert!(obstacle.contains("threads"), "{obstacle}");
        drop(wait);
        thread.join().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(open_file(own).unwrap().is_some());
        drop(socket);
        assert!(check_copy(own, true).is_err());
        assert_eq!(own_number(own), Some(own));
    }
}
