//! Starting the runtime: the only process of the sandbox that the function's code runs in.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, clone};
use nix::unistd::{AccessFlags, Pid, access, chdir, execve, pipe2, setsid};

use super::{Doing, Failure, Groups, left_to_join, null, privileges, replace_stream};
use crate::sandbox::wire::{InitConfig, Program};

/// Where a runtime that waits is told its instance: far above what it opens, whose numbers stay what
/// they are.
pub(super) const GATE: RawFd = 100;

/// A flag of `clone3`, as `linux/sched.h` has it: the process begins in a given control group.
pub(super) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Of the runtime's process until its program runs; what it keeps there is small.
const STACK_BYTES: usize = 256 * 1024;

/// Starts the runtime's process and returns once its program runs. `gate` becomes its [`GATE`].
///
/// It begins in its control group of version 2 where the kernel can do that. To join that later, it would
/// wait, for 10 ms and more, until no process of the machine forks or ends.
///
/// Else the process shares this one's memory until then, while this one waits: to copy the memory for a
/// process that executes another program at once takes longer than executing it. Where the process makes
/// a user namespace of its own, which none that shares memory may, it has a copy.
pub(super) fn start(
    config: &InitConfig,
    groups: &Groups,
    gate: Option<BorrowedFd<'_>>,
) -> Result<Pid, Failure> {
    start_program(config, &config.runtime(), groups, gate)
}

/// [`start`], for any program that is to be what the runtime is.
pub(super) fn start_program(
    config: &InitConfig,
    program: &Program<'_>,
    groups: &Groups,
    gate: Option<BorrowedFd<'_>>,
) -> Result<Pid, Failure> {
    // Closed by exec; until then it carries what went wrong.
    let (mut failed, report) = {
        let (read, write) = pipe2(OFlag::O_CLOEXEC).doing("make a pipe")?;
        (File::from(read), write)
    };
    let become_runtime = |join: &[File]| {
        let failure = become_runtime(config, program, join, gate);
        let _ = nix::unistd::write(&report, failure.to_string().as_bytes());
        127
    };
    // SAFETY: this process has one thread, so the child may do whatever its parent could, and it ends
    // without running what belongs to its parent.
    let begun = groups.begin_in.as_ref().and_then(|folder| unsafe { fork_into(folder) }.ok());
    let child = match begun {
        // SAFETY: ends the child alone.
        Some(None) => unsafe { libc::_exit(become_runtime(left_to_join(&groups.join))) },
        Some(Some(child)) => child,
        None => start_joining(config, || become_runtime(&groups.join))?,
    };
    drop(report);
    let mut message = String::new();
    failed.read_to_string(&mut message).doing("wait for the runtime")?;
    if message.is_empty() {
        Ok(child)
    } else {
        Err(Failure::Program(program.path.display().to_string(), message))
    }
}

/// Forks a process that begins in a control group of version 2; None in the child.
///
/// # Safety
/// As `fork`: the child of a process with several threads may make system calls and nothing else.
unsafe fn fork_into(folder: &File) -> Result<Option<Pid>, Errno> {
    // SAFETY: numbers, for which 0 means that there is none.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.cgroup = folder.as_raw_fd() as u64;
    let size = size_of_val(&arguments);
    // SAFETY: without CLONE_VM this is fork: the child goes on here, on a copy of the stack.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut arguments, size) };
    let pid = i32::try_from(Errno::result(pid)?).map_err(|_| Errno::EOVERFLOW)?;
    Ok((pid > 0).then(|| Pid::from_raw(pid)))
}

/// Starts a process that joins its control groups, as the first that it does in `body`.
fn start_joining(config: &InitConfig, body: impl Fn() -> libc::c_int) -> Result<Pid, Failure> {
    let mut flags = CloneFlags::empty();
    if !config.user_namespace {
        flags |= CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
    }
    let mut stack = vec![0; STACK_BYTES];
    let child = Box::new(|| body() as isize);
    // SAFETY: this process has one thread, so the child may do whatever its parent could. It has a stack of
    // its own, and this process goes on once it has executed its program or ended; what it has done to the
    // memory by then is what a function that was called would have done. It ends without running what
    // belongs to its parent.
    let child =
        unsafe { clone(child, &mut stack, flags, Some(libc::SIGCHLD)) }.doing("start a process")?;
    // The kernel has judged this process's memory by its new user's rights.
    nix::sys::prctl::set_dumpable(false).doing("stay undumpable")?;
    Ok(child)
}

/// Returns only what kept the program from running.
fn become_runtime(
    config: &InitConfig,
    program: &Program<'_>,
    join: &[File],
    gate: Option<BorrowedFd<'_>>,
) -> Failure {
    match prepare(config, program, join, gate) {
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
    program: &Program<'_>,
    join: &[File],
    gate: Option<BorrowedFd<'_>>,
) -> Result<Image, Failure> {
    for tasks in join {
        // "0" is whoever writes it: no process number to translate between namespaces.
        nix::unistd::write(tasks, b"0").doing("join a cgroup")?;
    }
    setsid().doing("start a session")?;
    let null: OwnedFd = null()?;
    replace_stream(&null, 0)?;
    if let Some(output) = program.output {
        replace_stream(output, 1)?;
        replace_stream(output, 2)?;
    }
    let (file, adjustment) = privileges::OUT_OF_MEMORY;
    let _ = std::fs::write(file, adjustment);
    for call in privileges::prepare_runtime() {
        call.run()?;
    }
    let folder = &config.working_directory;
    chdir(folder).map_err(|error| Failure::Call(format!("enter {}", folder.display()), error))?;
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
    let path = text(find_program(program)?.as_os_str().as_bytes())?;
    let arguments =
        program.arguments.iter().map(|value| text(value.as_bytes())).collect::<Result<_, _>>()?;
    let environment = program
        .environment
        .iter()
        .map(|(name, value)| text(format!("{name}={value}").as_bytes()))
        .collect::<Result<_, _>>()?;
    Ok((path, arguments, environment))
}

/// The program's file: an image may name one on its PATH.
fn find_program(program: &Program<'_>) -> Result<PathBuf, Failure> {
    if program.path.as_os_str().as_bytes().contains(&b'/') {
        return Ok(program.path.to_owned());
    }
    let path = program.environment.iter().find(|(name, _)| *name == "PATH");
    let path = path.map_or("", |(_, value)| value);
    let mut candidates = path.split(':').map(|folder| Path::new(folder).join(program.path));
    candidates
        .find(|candidate| access(candidate, AccessFlags::X_OK).is_ok())
        .ok_or_else(|| Failure::Call(format!("find it on the PATH {path}"), Errno::ENOENT))
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::sandbox::cgroup::{Group, clear_tree, discover};

    #[test]
    fn a_process_begins_in_its_group_of_version_2() {
        let name = format!("test-begin-in-{}", std::process::id());
        let layout = discover(&name, true).filter(|layout| !layout.parents.is_empty());
        let group = layout.as_ref().and_then(|layout| Group::unlimited(layout, "a").ok());
        let (Some(layout), Some(group)) = (layout, group) else {
            return eprintln!("not run: no control groups that this process may make");
        };
        let Some(folder) = group.folder_to_begin_in() else {
            return eprintln!("not run: there is no version 2 of control groups");
        };
        let folder = File::open(folder).unwrap();
        let (wait, mut end) = std::io::pipe().unwrap();
        // SAFETY: the child makes system calls and nothing else.
        let child = match unsafe { fork_into(&folder) } {
            Ok(Some(child)) => child,
            // SAFETY: one byte is read to where there is one, and the child ends.
            Ok(None) => unsafe {
                let mut byte = 0_u8;
                libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
                libc::_exit(0)
            },
            Err(error) => return eprintln!("not run: {error}"),
        };
        assert_eq!(group.leader(), Some(child.as_raw()));
        end.write_all(b"x").unwrap();
        nix::sys::wait::waitpid(child, None).unwrap();
        group.remove().unwrap();
        for folder in layout.folders() {
            clear_tree(&folder).unwrap();
        }
    }
}
