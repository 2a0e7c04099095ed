//! The spawner itself: copies of it become first processes.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::ptr;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::socket::MsgFlags;
use nix::unistd::{getegid, geteuid};

use super::title::Title;
use super::{Answer, Order, Purpose};
use crate::sandbox::init;
use crate::sandbox::wire::{self, Report};

/// The socket to the worker, and a first process's to the worker, are standard input.
const CONTROL: RawFd = 0;

/// Starts first processes until the worker has no more use for it, or is gone.
pub(super) fn serve() -> ExitCode {
    // If this fails, the worker sees that the process has ended.
    run().unwrap_or(ExitCode::FAILURE)
}

/// Returns in this process, and in each first process, with how it ended.
fn run() -> io::Result<ExitCode> {
    // First processes want all signals blocked from their first instruction.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    // If the worker has died before this, the socket says so.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    // What this program opens is closed by exec; this is about what others have left open to the worker.
    // SAFETY: nothing in this process owns a descriptor above the standard streams yet.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    let title = Title::find()?;
    let owner = (geteuid().as_raw(), getegid().as_raw());
    while let Some((order, beside)) = wire::receive::<Order>(CONTROL, MsgFlags::empty())? {
        let Ok([control, output]) = <[OwnedFd; 2]>::try_from(beside) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match copy(&order) {
            Ok(Copy::Parent { pid, pidfd }) => {
                wire::send(CONTROL, &Answer::Started(pid), &[pidfd.as_raw_fd()])?;
            }
            Ok(Copy::Child) => return become_first(&order, owner, title, control, output),
            Err(error) => wire::send(CONTROL, &Answer::Failed(error as i32), &[])?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Who goes on after [`copy`].
enum Copy {
    Parent { pid: i32, pidfd: OwnedFd },
    Child,
}

/// Copies this process into fresh namespaces, as a child of the worker.
fn copy(order: &Order) -> Result<Copy, Errno> {
    let mut flags = libc::CLONE_PARENT
        | libc::CLONE_PIDFD
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    if order.purpose == Purpose::Instance {
        flags |= libc::CLONE_NEWPID;
    }
    if order.own_network {
        flags |= libc::CLONE_NEWNET;
    }
    if order.user_namespace {
        flags |= libc::CLONE_NEWUSER;
    }
    let mut pidfd: RawFd = -1;
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: without CLONE_VM this is fork: the child goes on here, on a copy of the stack, and as this
    // process has one thread, it may do whatever this could. The kernel writes a descriptor to `pidfd`.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::c_long::from(flags),
            nothing,
            &raw mut pidfd,
            nothing,
            nothing,
        )
    };
    let pid = i32::try_from(Errno::result(pid)?).map_err(|_| Errno::EOVERFLOW)?;
    if pid == 0 {
        return Ok(Copy::Child);
    }
    // SAFETY: CLONE_PIDFD has just put a new descriptor there.
    Ok(Copy::Parent { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } })
}

/// Makes the copy an instance's first process, with nothing of the spawner's but its memory.
/// `owner`: the worker's user and group, which have no number here without a map.
fn become_first(
    order: &Order,
    owner: (u32, u32),
    title: Title,
    control: OwnedFd,
    output: OwnedFd,
) -> io::Result<ExitCode> {
    let streams = [(&control, 0), (&output, 1), (&output, 2)];
    for (descriptor, number) in streams {
        // SAFETY: dup2 onto a standard stream, which nothing in this process owns as a value.
        Errno::result(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })?;
    }
    drop((control, output));
    title.set(&[init::ARGUMENT, &order.label]);
    if order.user_namespace
        && let Err(error) = map_users(owner)
    {
        let report = Report::Failed(format!("cannot map the user: {error}"));
        // The worker may be gone already, and then nobody wants to know.
        let _ = wire::send(CONTROL, &report, &[]);
        return Err(error);
    }
    Ok(match order.purpose {
        Purpose::Instance => init::enter(title),
        Purpose::Zygote => init::enter_zygote(),
        Purpose::Keeper => init::enter_keeper(),
    })
}

/// Makes the worker's user the root of this user namespace.
fn map_users((uid, gid): (u32, u32)) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}
