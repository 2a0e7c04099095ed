//! Starting the runtime: the only process of the sandbox that the function's code runs in.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, clone};
use nix::unistd::{Pid, chdir, execve, pipe2, setsid};

use super::{Doing, Failure, null, privileges, silence};
use crate::sandbox::rootfs::TASK;
use crate::sandbox::wire::InitConfig;

/// Where a runtime that waits is told its instance: far above what it opens, whose numbers stay what
/// they are.
pub(super) const GATE: RawFd = 100;

/// Of the runtime's process until its program runs; what it keeps there is small.
const STACK_BYTES: usize = 256 * 1024;

/// Starts the runtime's process and returns once its program runs. `gate` becomes its [`GATE`].
///
/// The process shares this one's memory until then, while this one waits: to copy the memory for a
/// process that executes another program at once takes longer than executing it. Where the process makes
/// a user namespace of its own, which none that shares memory may, it has a copy.
pub(super) fn start(
    config: &InitConfig,
    join: &[File],
    gate: Option<BorrowedFd<'_>>,
) -> Result<Pid, Failure> {
    // Closed by exec; until then it carries what went wrong.
    let (mut failed, report) = {
        let (read, write) = pipe2(OFlag::O_CLOEXEC).doing("make a pipe")?;
        (File::from(read), write)
    };
    let child = || {
        let failure = become_runtime(config, join, gate);
        let _ = nix::unistd::write(&report, failure.to_string().as_bytes());
        127
    };
    let mut flags = CloneFlags::empty();
    if !config.user_namespace {
        flags |= CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
    }
    let mut stack = vec![0; STACK_BYTES];
    // SAFETY: this process has one thread, so the child may do whatever its parent could. It has a stack of
    // its own, and this process goes on once it has executed its program or ended; what it has done to the
    // memory by then is what a function that was called would have done. It ends without running what
    // belongs to its parent.
    let child = unsafe { clone(Box::new(child), &mut stack, flags, Some(libc::SIGCHLD)) }
        .doing("start a process")?;
    drop((stack, report));
    // The kernel has judged this process's memory by its new user's rights.
    nix::sys::prctl::set_dumpable(false).doing("stay undumpable")?;
    let mut message = String::new();
    failed.read_to_string(&mut message).doing("wait for the runtime")?;
    if message.is_empty() {
        Ok(child)
    } else {
        Err(Failure::Program(config.program.display().to_string(), message))
    }
}

/// Returns only what kept the program from running.
fn become_runtime(config: &InitConfig, join: &[File], gate: Option<BorrowedFd<'_>>) -> Failure {
    match prepare(config, join, gate) {
        Ok((program, arguments, environment)) => {
            let Err(error) = execve(&program, &arguments, &environment);
            Failure::Step("execute the program", error)
        }
        Err(failure) => failure,
    }
}

type Image = (CString, Vec<CString>, Vec<CString>);

fn prepare(
    config: &InitConfig,
    join: &[File],
    gate: Option<BorrowedFd<'_>>,
) -> Result<Image, Failure> {
    for tasks in join {
        // "0" is whoever writes it: no process number to translate between namespaces.
        nix::unistd::write(tasks, b"0").doing("join a cgroup")?;
    }
    setsid().doing("start a session")?;
    let null: OwnedFd = null()?;
    silence(&null, 0)?;
    let (file, adjustment) = privileges::OUT_OF_MEMORY;
    let _ = std::fs::write(file, adjustment);
    for call in privileges::prepare_runtime() {
        call.run()?;
    }
    chdir(TASK).doing("enter the code's folder")?;
    privileges::drop_all(config)?;
    close_rest().doing("close descriptors")?;
    if let Some(gate) = gate {
        // SAFETY: dup2 onto a number that nothing in this process owns as a value; exec leaves it open.
        let result = unsafe { libc::dup2(gate.as_raw_fd(), GATE) };
        Errno::result(result).doing("hand a descriptor over")?;
    }

    let text = |value: &[u8]| {
        CString::new(value).map_err(|_| Failure::Step("pass a zero byte on", Errno::EINVAL))
    };
    let program = text(config.program.as_os_str().as_bytes())?;
    let arguments =
        config.arguments.iter().map(|value| text(value.as_bytes())).collect::<Result<_, _>>()?;
    let environment = config
        .environment
        .iter()
        .map(|(name, value)| text(format!("{name}={value}").as_bytes()))
        .collect::<Result<_, _>>()?;
    Ok((program, arguments, environment))
}

/// Has every descriptor but the standard streams closed by exec.
pub(super) fn close_rest() -> Result<(), Errno> {
    // SAFETY: marks descriptors; none is closed yet.
    let result = unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC)
    };
    match Errno::result(result) {
        Ok(_) => Ok(()),
        // Kernels before 5.11. Everything this binary opens is closed by exec anyway, and what the
        // worker inherited was closed when it started this process.
        Err(Errno::ENOSYS | Errno::EINVAL) => {
            let limit =
                nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?.0;
            for fd in 3..i32::try_from(limit).unwrap_or(i32::MAX) {
                // SAFETY: F_SETFD on a number that is no descriptor fails and changes nothing.
                unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
            }
            Ok(())
        }
        Err(error) => Err(error),
    }
}
