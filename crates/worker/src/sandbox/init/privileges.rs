//! Taking rights away: from the instance's first process, and, entirely, from the runtime.

use nix::errno::Errno;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid, setsid};

use super::seccomp::SystemCallFilter;
use super::{Doing, Failure};
use crate::sandbox::wire::InitConfig;

/// The number of capabilities that a kernel may know: the size of their sets.
const CAPABILITIES: libc::c_int = 64;

/// CAP_KILL: the right to signal other users' processes.
const CAP_KILL: u32 = 5;

/// Open files of a runtime, as on Lambda.
const OPEN_FILES: libc::rlim_t = 1024;

/// How readily the kernel kills functions when the whole machine is out of memory: before the worker
/// and other programs, which have 0.
const OOM_SCORE_ADJUSTMENT: &str = "500";

/// `capset`'s header for two 32-bit words a set.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Leaves the worker's session, dies with the worker, and cannot be looked into.
pub(super) fn detach() -> Result<(), Failure> {
    setsid().doing("leave the session")?;
    nix::sys::prctl::set_dumpable(false).doing("become undumpable")?;
    // If the worker has died before this, the control socket says so: see `watch`.
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).doing("ask to die with the worker")
}

/// Gives up every right but to signal the runtime, and every system call that waiting does not need.
pub(super) fn keep_only_kill(config: &InitConfig) -> Result<(), Failure> {
    let null = super::null()?;
    super::silence(&null, 1)?;
    super::silence(&null, 2)?;
    drop(null);
    set_capabilities(1 << CAP_KILL).doing("drop capabilities")?;
    if config.filter {
        SystemCallFilter::for_first_process().install().doing("filter its own system calls")?;
    }
    Ok(())
}

/// What cannot be done once the rights are gone: joining a keyring of its own and becoming the
/// preferred victim of the machine's lack of memory.
pub(super) fn prepare_runtime() {
    // None of these keeps a function from running, and old kernels lack one or another.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJUSTMENT);
    // SAFETY: unshare of the cgroup namespace only changes how cgroup paths are shown.
    unsafe { libc::unshare(libc::CLONE_NEWCGROUP) };
    // SAFETY: KEYCTL_JOIN_SESSION_KEYRING with a null name touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, 0) };
}

/// Makes this process, which is about to become the runtime, an ordinary user without any rights.
pub(super) fn drop_all(config: &InitConfig) -> Result<(), Failure> {
    signals()?;
    limits()?;
    if config.user_namespace {
        nest_user(config.uid, config.gid)?;
    }
    if let Some(most) = config.max_processes {
        setrlimit(Resource::RLIMIT_NPROC, most, most).doing("limit the processes")?;
    }
    for capability in 0..CAPABILITIES {
        // SAFETY: PR_CAPBSET_DROP takes a number; EINVAL means that the kernel knows no more.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break;
        }
    }
    if !config.user_namespace {
        let (uid, gid) = (Uid::from_raw(config.uid), Gid::from_raw(config.gid));
        setgroups(&[]).doing("leave the groups")?;
        setresgid(gid, gid, gid).doing("change the group")?;
        setresuid(uid, uid, uid).doing("change the user")?;
    }
    set_capabilities(0).doing("drop capabilities")?;
    nix::sys::prctl::set_no_new_privs().doing("forbid new privileges")?;
    if config.filter {
        SystemCallFilter::for_functions().install().doing("filter system calls")?;
    }
    Ok(())
}

/// A second user namespace, in which the only user there is has an ordinary number.
fn nest_user(uid: u32, gid: u32) -> Result<(), Failure> {
    // Where /proc could not be mounted, the runtime stays user 0 of a namespace in which it has no
    // capability.
    if !std::path::Path::new("/proc/self/uid_map").exists() {
        return Ok(());
    }
    // The files below belong to the host's root while this process cannot be dumped.
    nix::sys::prctl::set_dumpable(true).doing("become dumpable")?;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUSER).doing("become an ordinary user")?;
    let step = "map the user";
    std::fs::write("/proc/self/setgroups", "deny").doing(step)?;
    std::fs::write("/proc/self/uid_map", format!("{uid} 0 1")).doing(step)?;
    std::fs::write("/proc/self/gid_map", format!("{gid} 0 1")).doing(step)
}

/// Signals as a fresh program expects them: none blocked, none ignored.
fn signals() -> Result<(), Failure> {
    // SAFETY: the default action is no handler.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.doing("reset a signal")?;
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).doing("unblock signals")
}

fn limits() -> Result<(), Failure> {
    let step = "set a resource limit";
    setrlimit(Resource::RLIMIT_CORE, 0, 0).doing(step)?;
    // What the worker may ask for: to run before others.
    setrlimit(Resource::RLIMIT_RTPRIO, 0, 0).doing(step)?;
    setrlimit(Resource::RLIMIT_NICE, 0, 0).doing(step)?;
    // A lower limit than ours stays: raising it may be forbidden.
    let (_, hard) = nix::sys::resource::getrlimit(Resource::RLIMIT_NOFILE).doing(step)?;
    let files = OPEN_FILES.min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, files, files).doing(step)
}

/// Sets the effective and permitted capabilities to `low` (of the first 32) and no inheritable ones.
fn set_capabilities(low: u32) -> Result<(), Errno> {
    let header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    data[0].effective = low;
    data[0].permitted = low;
    // SAFETY: capset reads one header and, for version 3, two data words, which outlive the call.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) })
        .map(drop)
}
