//! Zygotes: started runtimes of which instances are copies.
//!
//! A zygote has the root of its runtime and nothing else, sees no function's code, and keeps the rights
//! that making an instance takes. It is reached through one socket, whose other end only the worker and
//! first processes have. A first process orders a copy of the zygote into its namespace of processes
//! ([`Copy`]): the zygote forks twice, so that the copy, whose parent ends at once, becomes a child of
//! the first process, as a runtime is that was executed. The copy waits until the sandbox is built.

use std::borrow::Cow;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::MsgFlags;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, execve};
use serde::{Deserialize, Serialize};

use super::calls::Call;
use super::seccomp::SystemCallFilter;
use super::{Doing, Failure, Groups, mounts, privileges, receive, runtime};
use crate::sandbox::rootfs::TASK;
use crate::sandbox::wire::{self, InitConfig, ZygoteConfig};

/// What a first process has of its own, besides the namespace of its processes.
pub(super) const NAMESPACES: libc::c_int =
    libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// glibc's `RSEQ_SIG`. Where it is another, the kernel refuses it.
#[cfg(target_arch = "aarch64")]
const RSEQ_SIGNATURE: u32 = 0xd428_bc00;
#[cfg(not(target_arch = "aarch64"))]
const RSEQ_SIGNATURE: u32 = 0x5305_3053;

/// How long, in ms, a copy may take before a first process executes the program instead.
const PATIENCE_MS: u16 = 5_000;

/// To a zygote, at first: what its copies do before each runs.
#[derive(Serialize)]
pub(in crate::sandbox) struct Rules {
    /// What the zygote does to itself.
    own: Vec<Call>,
    /// A program for `seccomp(2)`; none where the kernel has no filters.
    filter: Option<Vec<u8>>,
    /// Its number, its operation, and its flags in the order in which they are tried.
    seccomp: (libc::c_long, libc::c_uint, Vec<libc::c_ulong>),
    setns: libc::c_long,
    pidfd_open: libc::c_long,
    successor: SuccessorNumbers,
    process_namespace: libc::c_int,
    /// All others that a first process has of its own.
    namespaces: libc::c_int,
    folder: &'static str,
    out_of_memory: (&'static str, &'static str),
}

/// What it takes to go on as a process that has begun in a control group: numbers of system calls.
#[derive(Serialize)]
struct SuccessorNumbers {
    /// With the flag for the group.
    clone3: (libc::c_long, u64),
    set_tid_address: libc::c_long,
    get_robust_list: libc::c_long,
    set_robust_list: libc::c_long,
    /// With the signature that the C library gives to the kernel.
    rseq: (libc::c_long, u32),
    /// Instructions for this machine: a function of two arguments that are `clone3`'s, which returns in the child, and
    /// if there is none.
    code: Option<&'static [u8]>,
}

/// The parent of what `clone3` makes ends within it, using nothing but registers.
#[cfg(target_arch = "x86_64")]
const CLONE_CODE: Option<&[u8]> = Some(&[
    0xb8, 0xb3, 0x01, 0x00, 0x00, // mov eax, 435: clone3
    0x0f, 0x05, // syscall
    0x48, 0x85, 0xc0, // test rax, rax
    0x7f, 0x01, // jg over the next
    0xc3, // ret
    0x31, 0xff, // xor edi, edi
    0xb8, 0xe7, 0x00, 0x00, 0x00, // mov eax, 231: exit_group
    0x0f, 0x05, // syscall
    0x0f, 0x0b, // ud2
]);
#[cfg(not(target_arch = "x86_64"))]
const CLONE_CODE: Option<&[u8]> = None;

impl SuccessorNumbers {
    fn new() -> Self {
        Self {
            clone3: (libc::SYS_clone3, runtime::CLONE_INTO_CGROUP),
            set_tid_address: libc::SYS_set_tid_address,
            get_robust_list: libc::SYS_get_robust_list,
            set_robust_list: libc::SYS_set_robust_list,
            rseq: (libc::SYS_rseq, RSEQ_SIGNATURE),
            code: CLONE_CODE,
        }
    }
}

impl Rules {
    pub(in crate::sandbox) fn new(filter: bool) -> Self {
        let filter = filter.then(|| SystemCallFilter::for_functions().to_bytes());
        let parent_death = Call::new("die with the worker", libc::SYS_prctl)
            .number(libc::PR_SET_PDEATHSIG)
            .number(libc::SIGKILL);
        let dumpable =
            Call::new("become undumpable", libc::SYS_prctl).number(libc::PR_SET_DUMPABLE).number(0);
        Self {
            own: vec![parent_death, dumpable],
            filter,
            seccomp: (
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                vec![libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0],
            ),
            setns: libc::SYS_setns,
            pidfd_open: libc::SYS_pidfd_open,
            successor: SuccessorNumbers::new(),
            process_namespace: libc::CLONE_NEWPID,
            namespaces: NAMESPACES,
            folder: TASK,
            out_of_memory: privileges::OUT_OF_MEMORY,
        }
    }
}

/// First process to zygote: make a copy. Beside it: the first process's descriptor, the copy's end of
/// the [`Order`]'s socket, and its output. Nothing of the function is in it: what a
/// zygote has read may be in the memory of every copy that comes after.
const COPY: u8 = 0;

/// First process to copy, over a socket of theirs: what to become. Beside it: the control files through
/// which it joins its cgroups, and at the end the folder in which it can begin instead of joining by the last.
#[derive(Serialize, Deserialize)]
pub(super) struct Order<'a> {
    pub environment: Cow<'a, [(String, String)]>,
    /// How many control files there are.
    pub groups: usize,
    /// Whether there is a folder.
    pub begin_in: bool,
    pub calls: Vec<Call>,
    /// After its system calls are filtered.
    pub last: Vec<Call>,
}

/// Copy to first process, over the same.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// It waits for what it is to become.
    Waits,
    /// It is about to load the handler, and has this number.
    Runs(i32),
    Failed(String),
}

/// Becomes a zygote. Returns only what kept it from that.
pub(super) fn become_one() -> Result<(), Failure> {
    privileges::detach()?;
    let Some((config, _)) = receive::<ZygoteConfig>()? else { return Ok(()) };
    mounts::build_bare(&config.root)?;
    privileges::keep_for_zygote()?;
    let text = |value: &[u8]| {
        CString::new(value).map_err(|_| Failure::Step("pass a zero byte on", Errno::EINVAL))
    };
    let program = text(config.program.as_os_str().as_bytes())?;
    let list = |values: &[String]| {
        values.iter().map(|value| text(value.as_bytes())).collect::<Result<Vec<_>, _>>()
    };
    let (arguments, environment) = (list(&config.arguments)?, list(&config.environment)?);
    runtime::close_rest().doing("close descriptors")?;
    let Err(error) = execve(&program, &arguments, &environment);
    Err(Failure::Program(config.program.display().to_string(), error.to_string()))
}

/// A copy of a zygote, which waits for what it is to become. Once this is dropped, it ends.
pub(super) struct Copy {
    socket: OwnedFd,
}

impl Copy {
    /// Orders one.
    pub(super) fn order(zygote: &OwnedFd) -> Result<Self, Failure> {
        let (socket, theirs) = wire::blocking_pair().doing("make a pair of sockets")?;
        // SAFETY: pidfd_open reads no memory, and gives a descriptor that nothing else knows.
        let own = unsafe {
            let number = libc::syscall(libc::SYS_pidfd_open, std::process::id(), 0);
            OwnedFd::from_raw_fd(Errno::result(number).doing("open its own number")? as i32)
        };
        let output = 1;
        let beside = [own.as_raw_fd(), theirs.as_raw_fd(), output];
        match wire::send(zygote.as_raw_fd(), &COPY, &beside) {
            Ok(()) => Ok(Self { socket }),
            // It has not taken others' orders for as long as that.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Failure::Silent),
            Err(error) => Err(Failure::Io("reach the zygote", error)),
        }
    }

    /// Returns once it waits, or there is something to be read from `control`; says whether it waits. The
    /// error says why it never will.
    pub(super) fn waits_before(&self, control: RawFd) -> Result<bool, Failure> {
        // SAFETY: the descriptor is open until the process ends.
        let control = unsafe { BorrowedFd::borrow_raw(control) };
        let mut ready = [
            PollFd::new(control, PollFlags::POLLIN),
            PollFd::new(self.socket.as_fd(), PollFlags::POLLIN),
        ];
        poll(&mut ready, PollTimeout::NONE).doing("wait for the copy")?;
        if ready[0].any() == Some(true) {
            return Ok(false);
        }
        match self.receive()? {
            Report::Waits => Ok(true),
            Report::Runs(_) => Ok(false),
            Report::Failed(message) => Err(Failure::NotForked(message)),
        }
    }

    /// Makes it the runtime of this sandbox, and returns once that runs; the error says why it does not,
    /// and that it never will.
    pub(super) fn become_runtime(
        self,
        config: &InitConfig,
        groups: &Groups,
    ) -> Result<Pid, Failure> {
        let mut calls = privileges::prepare_runtime();
        calls.extend(privileges::become_user(config));
        // As after an exec; a change of the user has taken it away. Until it is filtered, none of the
        // function's processes may reach into it.
        let dumpable =
            Call::new("be dumpable", libc::SYS_prctl).number(libc::PR_SET_DUMPABLE).number(1);
        let order = Order {
            environment: Cow::Borrowed(&config.environment),
            groups: groups.join.len(),
            begin_in: groups.begin_in.is_some(),
            calls,
            last: vec![dumpable],
        };
        let beside: Vec<_> =
            groups.join.iter().chain(&groups.begin_in).map(AsRawFd::as_raw_fd).collect();
        if let Err(error) = wire::send(self.socket.as_raw_fd(), &order, &beside) {
            // It may have said why before it ended.
            while let Ok(report) = self.receive() {
                if let Report::Failed(message) = report {
                    return Err(Failure::NotForked(message));
                }
            }
            return Err(Failure::Io("tell the copy its order", error));
        }
        loop {
            // Once this end is closed, a copy that comes too late cannot report, and ends.
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::from(PATIENCE_MS)) {
                // A copy has its instance's part of the CPU, which may be small: no fault of the zygote.
                Ok(0) if has_child() => return Err(Failure::CopyLate),
                Ok(0) => return Err(Failure::Silent),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(Failure::Step("wait for the copy", error)),
            }
            match self.receive()? {
                Report::Waits => {}
                Report::Runs(number) => return Ok(Pid::from_raw(number)),
                Report::Failed(message) => return Err(Failure::NotForked(message)),
            }
        }
    }

    fn receive(&self) -> Result<Report, Failure> {
        match wire::receive(self.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT) {
            Ok(Some((report, _))) => Ok(report),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(Failure::Silent),
            Ok(None) | Err(_) => Err(Failure::CopyEnded),
        }
    }
}

/// Whether this process has a child, ended or not.
fn has_child() -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, look) != Err(Errno::ECHILD)
}

/// Tells a zygote its rules, before any order.
pub(in crate::sandbox) fn instruct(socket: &OwnedFd, filter: bool) -> io::Result<()> {
    wire::send(socket.as_raw_fd(), &Rules::new(filter), &[])
}
