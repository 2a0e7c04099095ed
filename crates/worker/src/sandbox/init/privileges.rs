//! Taking rights away: from the instance's first process, and, entirely, from the runtime.

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, signal, sigprocmask};
use nix::unistd::setsid;

use super::calls::Call;
use super::seccomp::SystemCallFilter;
use super::{Doing, Failure};
use crate::sandbox::wire::InitConfig;

/// The number of capabilities that a kernel may know: the size of their sets.
const CAPABILITIES: libc::c_int = 64;

/// CAP_KILL: the right to signal other users' processes.
const CAP_KILL: u32 = 5;

/// CAP_SETPCAP: the right to take from the bounding set.
const CAP_SETPCAP: u32 = 8;

/// What making an instance takes: becoming another user and group (CAP_SETGID, CAP_SETUID), and entering
/// the namespaces of a first process that nobody may look into (CAP_SYS_CHROOT, CAP_SYS_PTRACE,
/// CAP_SYS_ADMIN).
const ZYGOTE_CAPABILITIES: [u32; 5] = [6, 7, 18, 19, 21];

/// Open files of a runtime, as on Lambda.
pub(in crate::sandbox) const OPEN_FILES: libc::rlim_t = 1024;

/// How readily the kernel kills functions when the whole machine is out of memory: before the worker
/// and other programs, which have 0.
const OOM_SCORE_ADJUSTMENT: &str = "500";

/// `capset`'s header for two 32-bit words a set.
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

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
    super::replace_stream(&null, 1)?;
    super::replace_stream(&null, 2)?;
    drop(null);
    set_capabilities(Capabilities { permitted: 1 << CAP_KILL, inheritable: 0 }).run()?;
    if config.filter {
        SystemCallFilter::for_first_process().install().doing("filter its own system calls")?;
    }
    Ok(())
}

/// A file and what is written to it, so that the process becomes the preferred victim of the machine's
/// lack of memory.
pub(in crate::sandbox) const OUT_OF_MEMORY: (&str, &str) =
    ("/proc/self/oom_score_adj", OOM_SCORE_ADJUSTMENT);

/// What cannot be done once the rights are gone. None of it keeps a function from running, and old
/// kernels lack one or another.
pub(super) fn prepare_runtime() -> Vec<Call> {
    vec![
        // Only changes how cgroup paths are shown.
        Call::new("hide the control groups", libc::SYS_unshare)
            .number(libc::CLONE_NEWCGROUP)
            .optional(),
        Call::new("join a keyring of its own", libc::SYS_keyctl)
            .number(libc::KEYCTL_JOIN_SESSION_KEYRING)
            .optional(),
    ]
}

/// Makes this process, which is about to become the runtime, an ordinary user without any rights.
pub(super) fn drop_all(config: &InitConfig) -> Result<(), Failure> {
    signals()?;
    limits()?;
    if config.user_namespace {
        nest_user(config.uid, config.gid)?;
    }
    drop_bounding_set();
    for call in become_user(config) {
        call.run()?;
    }
    if config.filter {
        SystemCallFilter::for_functions().install().doing("filter system calls")?;
    }
    Ok(())
}

/// Makes a process whose bounding set is empty an ordinary user without any rights, which it cannot
/// gain any more.
pub(super) fn become_user(config: &InitConfig) -> Vec<Call> {
    let mut calls = Vec::new();
    if let Some(most) = config.max_processes {
        let limit = [most.to_ne_bytes(), most.to_ne_bytes()].concat();
        calls.push(
            Call::new("limit the processes", libc::SYS_prlimit64)
                .number(0)
                .number(libc::RLIMIT_NPROC.cast_signed())
                .bytes(limit),
        );
    }
    if !config.user_namespace {
        let (uid, gid) = (i64::from(config.uid), i64::from(config.gid));
        calls.extend([
            Call::new("leave the groups", libc::SYS_setgroups),
            Call::new("change the group", libc::SYS_setresgid).number(gid).number(gid).number(gid),
            Call::new("change the user", libc::SYS_setresuid).number(uid).number(uid).number(uid),
        ]);
    }
    calls.extend([
        set_capabilities(Capabilities::default()),
        Call::new("forbid new privileges", libc::SYS_prctl)
            .number(libc::PR_SET_NO_NEW_PRIVS)
            .number(1),
    ]);
    calls
}

/// Leaves a process that is about to execute a zygote the rights that making instances takes, and its
/// copies a runtime's limits.
pub(super) fn keep_for_zygote() -> Result<(), Failure> {
    signals()?;
    limits()?;
    let low = ZYGOTE_CAPABILITIES.iter().fold(0, |low, capability| low | 1 << capability);
    // Executing, root gets the inheritable ones, and what the bounding set has besides: nothing. What
    // is inheritable must be in that when it is set.
    set_capabilities(Capabilities { permitted: low | 1 << CAP_SETPCAP, inheritable: low }).run()?;
    drop_bounding_set();
    Ok(())
}

/// The kernel knows no more capabilities once it refuses a number.
fn drop_bounding_set() {
    for capability in 0..CAPABILITIES {
        // SAFETY: PR_CAPBSET_DROP takes a number.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } != 0 {
            break;
        }
    }
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
pub(super) fn signals() -> Result<(), Failure> {
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

/// Capabilities, of the first 32.
#[derive(Clone, Copy, Default)]
struct Capabilities {
    /// Also the effective ones.
    permitted: u32,
    inheritable: u32,
}

fn set_capabilities(to: Capabilities) -> Call {
    // As linux/capability.h lays them out: the version and whose they are (0: the caller's); then the
    // effective, permitted and inheritable ones, and the same of the higher numbers.
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    Call::new("drop capabilities", libc::SYS_capset)
        .bytes(bytes(&[CAPABILITY_VERSION_3, 0]))
        .bytes(bytes(&[to.permitted, to.permitted, to.inheritable, 0, 0, 0]))
}
