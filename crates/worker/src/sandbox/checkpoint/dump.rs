//! Making a checkpoint of a started instance.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Criu, Dumped, complaint, privileged};
use crate::sandbox::init::RESTORABLE;
use crate::sandbox::rootfs::GROUP_ID;

const LOG: &str = "dump.log";

/// The namespaces of a first process that CRIU enters, so that to it the instance's processes are plain ones.
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// Writes the images of an instance's runtime and all that it has started into a folder. `first`: the instance's first
/// process, and its number here; `user`: the instance's. What does not go on is left stopped, for its caller to end: if it
/// ended here, so would the instance's first process, its namespace, and CRIU in it before it has said that all is
/// well. The error says why there are none: what follows a colon. Waits.
pub(super) fn dump(
    criu: &Criu,
    (first, number): (BorrowedFd<'_>, i32),
    user: u32,
    folder: &Path,
    goes_on: bool,
) -> Result<Dumped, String> {
    let text = |error: io::Error| error.to_string();
    check(number)?;
    let runtime = children(number)?[0];
    let output = fs::read_link(format!("/proc/{runtime}/fd/1")).map_err(text)?;
    let output = output.to_str().filter(|name| name.starts_with("pipe:")).map(str::to_owned);
    let output = output.ok_or("its output is no pipe")?;
    let (loader, libraries, program) =
        (path(&criu.loader)?, path(&criu.libraries)?, path(&criu.program)?);
    let (images, cache) = (open(folder)?, path(&criu.cache)?);
    let seen = |file: &File| format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut command = Command::new(seen(&loader));
    command.args(["--library-path", &seen(&libraries), &seen(&program), "dump"]);
    command.args(["-t", &RESTORABLE.to_string(), "-D", &seen(&images), "-o", LOG, "-v1"]);
    command.args(["--unprivileged", "--tcp-close", "--network-lock", "skip"]);
    command.args(["--manage-cgroups=ignore", "--external", &output]);
    command.arg(if goes_on { "--leave-running" } else { "--leave-stopped" });
    command.env_clear().env("XDG_RUNTIME_DIR", seen(&cache));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let first = first.as_raw_fd();
    let inherited = [&loader, &libraries, &program, &images, &cache].map(AsRawFd::as_raw_fd);
    // SAFETY: system calls and nothing else.
    unsafe { command.pre_exec(move || enter(first, user, inherited)) };
    let status = command.status().map_err(text)?;
    if !status.success() {
        let log = fs::read(folder.join(LOG)).unwrap_or_default();
        let complaint = complaint(&String::from_utf8_lossy(&log));
        return Err(format!("CRIU makes no checkpoint of it ({status}): {complaint}"));
    }
    for name in [LOG, "stats-dump"] {
        let _ = fs::remove_file(folder.join(name));
    }
    Ok(Dumped { output, user })
}

/// Whether an instance can have a checkpoint, as far as CRIU would not find out.
fn check(first: i32) -> Result<(), String> {
    let others = children(first)?.len() - 1;
    if others > 0 {
        return Err(format!("it has left {others} processes behind that have no parent"));
    }
    let left = fs::read_dir(format!("/proc/{first}/root/tmp")).map_err(|it| it.to_string())?;
    let left = left.filter_map(Result::ok).map(|entry| entry.file_name()).min();
    left.map_or(Ok(()), |name| {
        Err(format!(
            "it has files in /tmp, which a restored instance would lack, such as {}",
            name.display()
        ))
    })
}

/// The children of a process, at least one.
fn children(process: i32) -> Result<Vec<i32>, String> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let text = text.map_err(|error| error.to_string())?;
    let found: Vec<_> = text.split_whitespace().filter_map(|it| it.parse().ok()).collect();
    if found.is_empty() { Err("it has ended".into()) } else { Ok(found) }
}

/// A file or folder of the host that is opened by this in another mount namespace.
fn path(path: &Path) -> Result<File, String> {
    let opened = File::options().read(true).custom_flags(libc::O_PATH).open(path);
    opened.map_err(|error| format!("{}: {error}", path.display()))
}

fn open(folder: &Path) -> Result<File, String> {
    File::open(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Enters the namespaces of a first process and becomes the instance's user, in a child of this one.
fn enter(first: RawFd, user: u32, inherited: [RawFd; 5]) -> io::Result<()> {
    let check = |result: i64| if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: system calls with numbers, a text with a zero at its end, and a number that lives here. The process, which
    // has one thread, forks once more, since one's own namespace of processes stays the same; the first of the two only
    // waits, and ends as the second has.
    unsafe {
        check(libc::setns(first, NAMESPACES).into())?;
        match libc::fork() {
            -1 => return Err(io::Error::last_os_error()),
            0 => {}
            child => {
                let mut status = 0;
                while libc::waitpid(child, &raw mut status, 0) < 0 {}
                // As a shell would say it.
                let signal = libc::WIFSIGNALED(status).then(|| 128 + libc::WTERMSIG(status));
                libc::_exit(signal.unwrap_or_else(|| libc::WEXITSTATUS(status)));
            }
        }
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL).into())?;
        check(libc::chdir(c"/".as_ptr()).into())?;
        for descriptor in inherited {
            check(libc::fcntl(descriptor, libc::F_SETFD, 0).into())?;
        }
    }
    privileged::become_user(user, GROUP_ID)
}
