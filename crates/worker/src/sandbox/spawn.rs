//! Starting processes in fresh namespaces, from one thread that lives as long as the worker.
//!
//! An instance's first process asks the kernel to be killed when its parent dies, and to the kernel
//! the parent is a *thread*: started from a pool's thread, instances would die whenever the pool
//! shrinks. So one thread starts them all.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::mpsc;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, SigmaskHow};
use tokio::sync::oneshot;

use super::init;
use super::threads::{self, Failure};

/// Room for the child between clone and exec, which only makes system calls.
const STACK_BYTES: usize = 64 * 1024;

/// What an instance's first process starts with.
pub(super) struct Launch {
    /// What `ps` shows, and what a later worker finds leftovers by.
    pub label: String,
    /// The end of the socket pair that becomes its standard input.
    pub control: OwnedFd,
    /// Where its and the function's output goes.
    pub output: OwnedFd,
    pub own_network: bool,
    pub user_namespace: bool,
}

/// A started process. Dropping it ends and reaps it.
pub(super) struct Child {
    pub pid: i32,
    pidfd: Option<OwnedFd>,
}

impl Child {
    /// From now on it is the caller's to reap.
    pub(super) fn into_pidfd(mut self) -> OwnedFd {
        self.pidfd.take().expect("only taken here, by value")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            // It may have ended already, but nobody else has reaped it.
            let _ = kill(pidfd);
            let _ = reap(pidfd);
        }
    }
}

type Job = (Launch, oneshot::Sender<io::Result<Child>>);

/// The thread that starts processes.
#[derive(Clone)]
pub(super) struct Spawner {
    jobs: mpsc::Sender<Job>,
}

impl Spawner {
    /// `executable` is this binary, or another one that calls [`init::enter_if_asked`] first.
    pub(super) fn new(executable: &Path, failure: &Failure) -> io::Result<Self> {
        let executable = CString::new(executable.as_os_str().as_bytes())?;
        let (jobs, queue) = mpsc::channel::<Job>();
        threads::start("uncia-spawner", "starts processes", failure, move || {
            while let Ok((launch, answer)) = queue.recv() {
                // If nobody waits for the answer any more, dropping the child ends it.
                drop(answer.send(clone(&executable, &launch)));
            }
        })?;
        Ok(Self { jobs })
    }

    pub(super) async fn start(&self, launch: Launch) -> io::Result<Child> {
        let (answer, started) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts processes has ended");
        self.jobs.send((launch, answer)).map_err(|_| gone())?;
        started.await.map_err(|_| gone())?
    }
}

/// Collects an ended child, so that nothing of it is left. Blocks until it has ended.
pub(super) fn reap(pidfd: &OwnedFd) -> nix::Result<()> {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    use std::os::fd::AsFd;
    waitid(Id::PIDFd(pidfd.as_fd()), WaitPidFlag::WEXITED).map(drop)
}

/// Kills a process by its descriptor, which cannot mean another one.
pub(super) fn kill(pidfd: &OwnedFd) -> nix::Result<()> {
    // SAFETY: pidfd_send_signal with a null siginfo reads no memory.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            libc::SIGKILL,
            ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    Errno::result(result).map(drop)
}

/// What the child needs between clone and exec. It shares the parent's memory until then, and the
/// parent's thread waits, so everything is prepared beforehand and nothing is allocated.
struct Plan {
    executable: *const libc::c_char,
    arguments: [*const libc::c_char; 4],
    environment: [*const libc::c_char; 1],
    control: RawFd,
    output: RawFd,
    /// Contents of `uid_map` and `gid_map`, when there is a user namespace.
    maps: Option<(CString, CString)>,
    /// Written by the child when exec or what comes before it fails.
    error: libc::c_int,
}

fn clone(executable: &CString, launch: &Launch) -> io::Result<Child> {
    let label = CString::new(launch.label.as_str())?;
    let argument = CString::new(init::ARGUMENT)?;
    let mut flags = libc::CLONE_VM
        | libc::CLONE_VFORK
        | libc::CLONE_PIDFD
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::SIGCHLD;
    if launch.own_network {
        flags |= libc::CLONE_NEWNET;
    }
    let mut maps = None;
    if launch.user_namespace {
        flags |= libc::CLONE_NEWUSER;
        let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
        maps = Some((CString::new(format!("0 {uid} 1"))?, CString::new(format!("0 {gid} 1"))?));
    }
    let mut plan = Plan {
        executable: executable.as_ptr(),
        // The first is the name that ps shows.
        arguments: [c"uncia-instance".as_ptr(), argument.as_ptr(), label.as_ptr(), ptr::null()],
        environment: [ptr::null()],
        control: launch.control.as_raw_fd(),
        output: launch.output.as_raw_fd(),
        maps,
        error: 0,
    };
    // u128 for the alignment that every processor's calling convention wants.
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let top = stack.as_mut_ptr_range().end;
    let mut pidfd: RawFd = -1;

    // No handler of this process may run in the child, which shares its memory; the child keeps all
    // signals blocked through exec, as an instance's first process wants them.
    let mut before = SigSet::empty();
    nix::sys::signal::pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    // SAFETY: the stack is ours and large enough; CLONE_VFORK keeps this thread, and so the stack,
    // the plan and all it points to, in place until the child has called exec or _exit; and the
    // child function makes only system calls.
    let pid =
        unsafe { libc::clone(child, top.cast(), flags, (&raw mut plan).cast(), &raw mut pidfd) };
    let cloned = Errno::result(pid);
    nix::sys::signal::pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    let pid = cloned?;
    // SAFETY: CLONE_PIDFD has just put a new descriptor there.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    // SAFETY: the child wrote it, if at all, before this thread went on.
    let error = unsafe { ptr::read_volatile(&raw const plan.error) };
    if error != 0 {
        reap(&pidfd)?;
        return Err(io::Error::from_raw_os_error(error));
    }
    Ok(Child { pid, pidfd: Some(pidfd) })
}

/// Runs in the child, in its parent's memory: system calls only.
extern "C" fn child(plan: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the parent passes its plan and waits; see `clone`.
    unsafe {
        let plan = &mut *plan.cast::<Plan>();
        let ok = map_users(plan)
            // The worker's descriptors above 2 are none of the child's business, though all that
            // this program opens are closed by exec already. Old kernels lack the call.
            && libc::dup2(plan.control, 0) >= 0
            && libc::dup2(plan.output, 1) >= 0
            && libc::dup2(plan.output, 2) >= 0;
        if ok {
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            libc::execve(plan.executable, plan.arguments.as_ptr(), plan.environment.as_ptr());
        }
        ptr::write_volatile(&raw mut plan.error, *libc::__errno_location());
        libc::_exit(127)
    }
}

/// Makes the worker's user the root of the child's user namespace, if it has one: a program started
/// by a user without a name in its namespace would lose its capabilities.
///
/// # Safety
/// As for [`child`].
unsafe fn map_users(plan: &Plan) -> bool {
    let Some((uid, gid)) = &plan.maps else { return true };
    // SAFETY: only system calls on strings that the parent keeps.
    unsafe {
        write_file(c"/proc/self/setgroups", c"deny")
            && write_file(c"/proc/self/uid_map", uid)
            && write_file(c"/proc/self/gid_map", gid)
    }
}

/// # Safety
/// As for [`child`].
unsafe fn write_file(path: &std::ffi::CStr, text: &std::ffi::CStr) -> bool {
    // SAFETY: system calls on strings that outlive them.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        let length = text.count_bytes();
        let ok = fd >= 0 && libc::write(fd, text.as_ptr().cast(), length) == length as isize;
        if fd >= 0 {
            libc::close(fd);
        }
        ok
    }
}
