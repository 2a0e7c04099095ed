//! What a worker and the first process of an instance say to each other.
//!
//! They share one end each of a `SOCK_SEQPACKET` socket pair: every message is one packet of JSON,
//! and file descriptors travel beside it. The end of the connection means that the other is gone.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The largest packet that is read. The kernel's default send buffer takes about this much.
pub(super) const MAX_PACKET: usize = 256 * 1024;

/// Most file descriptors in one packet: the files of an instance's control groups.
const MAX_FDS: usize = 16;

/// Worker to init, the first packet: what to build before anything is known of the instance. Beside it, the
/// socket of the zygote whose copy the runtime is to be, if one is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct NetworkConfig {
    /// Whether the instance has a network namespace of its own.
    pub own_network: bool,
    /// Ports on the loopback interface whose listeners are handed to the worker.
    pub listen: Vec<u16>,
}

/// Worker to init, the second packet: what to build and what to run in it, and beside it what extensions
/// print to. To one whose runtime waits,
/// also the third: what it is an instance of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InitConfig {
    /// Whether the runtime is started at once, and what it is an instance of comes later.
    pub waits: bool,
    /// What `ps` shows of it.
    pub label: String,
    pub hostname: String,
    /// The root filesystem that all instances of this runtime share; with an image, where that is mounted.
    pub root: PathBuf,
    /// What is mounted there, if the function brings its own.
    pub image: Option<ImageMounts>,
    /// The function's code, unless that is in its image.
    pub code: PathBuf,
    /// Where the program is started, as seen in the root.
    pub working_directory: PathBuf,
    /// What is at `/opt`, if anything is.
    pub layers: Option<PathBuf>,
    pub tmp_bytes: u64,
    pub uid: u32,
    pub gid: u32,
    /// Whether the instance has a user namespace of its own (the worker is not root).
    pub user_namespace: bool,
    /// Whether system calls are filtered: false where the kernel has no filters.
    pub filter: bool,
    /// A limit of processes beside that of the control groups: of the instance's own user namespace.
    pub max_processes: Option<u64>,
    /// Files and folders of the host that appear read-only in the sandbox: (on the host, in the
    /// sandbox).
    pub mounts: Vec<(PathBuf, PathBuf)>,
    /// Control files through which the runtime's process joins its cgroups.
    pub join: Vec<PathBuf>,
    /// The folder of the group in which it can begin, so that it need not join the last of these.
    pub begin_in: Option<PathBuf>,
    /// What thaws the instance: written when the worker vanishes, so that a frozen instance can die.
    pub thaw: Option<(PathBuf, String)>,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    /// What runs beside the program, and starts before it.
    pub extensions: Vec<Extension>,
    /// What the runtime is restored from, if it is not started.
    pub restore: Option<Restore>,
    /// Whether a checkpoint may be made of it.
    pub restorable: bool,
    /// What makes all of this, if the first process does not do so itself.
    pub container: Option<Container>,
}

/// A checkpoint, and CRIU, which restores it: all on the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Restore {
    pub loader: PathBuf,
    pub libraries: PathBuf,
    pub program: PathBuf,
    pub cache: PathBuf,
    pub images: PathBuf,
    /// What the pipe was called that the runtime printed to.
    pub output: String,
}

/// A container of an OCI runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Container {
    /// Its name.
    pub id: String,
    /// The runtime's program, and its options before each command.
    pub program: PathBuf,
    pub options: Vec<String>,
    /// Its bundle, in which is also what the runtime keeps of it.
    pub folder: PathBuf,
    /// Whether the runtime makes control groups.
    pub makes_groups: bool,
}

/// A program of the function's layers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Extension {
    pub name: String,
    pub path: PathBuf,
    /// Variables of the runtime's environment that it does not have.
    pub hidden: Vec<String>,
}

/// A program with all that it is executed with.
pub(super) struct Program<'a> {
    pub path: &'a Path,
    pub arguments: Vec<&'a str>,
    pub environment: Vec<(&'a str, &'a str)>,
    /// What it prints to, if not to what the first process prints to.
    pub output: Option<BorrowedFd<'a>>,
}

impl Extension {
    pub(super) fn program<'a>(
        &'a self,
        config: &'a InitConfig,
        output: Option<BorrowedFd<'a>>,
    ) -> Program<'a> {
        let variables = config.environment.iter().filter(|(name, _)| !self.hidden.contains(name));
        Program {
            path: &self.path,
            arguments: self.path.to_str().into_iter().collect(),
            environment: variables.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            output,
        }
    }
}

/// What overlayfs makes an image's root of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ImageMounts {
    /// The unpacked layers, the highest first, with no folder twice.
    pub layers: Vec<PathBuf>,
    /// Where what the instance writes is mounted.
    pub scratch: PathBuf,
}

impl InitConfig {
    /// What becomes the runtime.
    pub(super) fn runtime(&self) -> Program<'_> {
        let variables = self.environment.iter();
        Program {
            path: &self.program,
            arguments: self.arguments.iter().map(String::as_str).collect(),
            environment: variables.map(|(name, value)| (name.as_str(), value.as_str())).collect(),
            output: None,
        }
    }

    /// Names folders and files of the host by paths without links: to a first process that has entered
    /// its root, the links would lead elsewhere.
    pub(super) fn follow_links(&mut self) -> io::Result<()> {
        self.code = self.code.canonicalize()?;
        self.layers = self.layers.as_deref().map(Path::canonicalize).transpose()?;
        for (from, _) in &mut self.mounts {
            *from = from.canonicalize()?;
        }
        Ok(())
    }
}

/// Worker to a process that becomes a zygote: what to build and what to run in it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ZygoteConfig {
    /// The root filesystem of its runtime.
    pub root: PathBuf,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    /// As exec takes it: `NAME=value`.
    pub environment: Vec<String>,
    /// Whether the system calls of its copies are filtered.
    pub filter: bool,
}

/// Keeper of a function's zygote to worker: what has become of the function's import.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum KeeperReport {
    /// It has ended, and there can be copies.
    Ready,
    /// Why there will be none: the end of a sentence about it.
    Refused(String),
}

/// Worker to init, later.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Send SIGTERM to the runtime.
    Terminate,
    /// Make a socket in the instance's network and hand it over.
    Socket,
    /// The extensions are ready for the runtime.
    StartRuntime,
    /// End, and leave nothing of the container.
    End,
}

/// Init to worker.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Report {
    /// The listeners asked for, as file descriptors, in order.
    Listening,
    /// The runtime, or the copy of a zygote that becomes it, was made ahead and waits for an instance.
    Waiting,
    /// Why there is no copy of the zygote that was asked: the runtime will be executed.
    Alone(String),
    /// The extensions run; the runtime waits for an order.
    Extensions,
    /// The program of an extension has ended.
    ExtensionExited(String, Exit),
    /// The program of an extension does not run, and why.
    ExtensionNotRunnable(String, String),
    /// The runtime's program runs. Times are readings of the monotonic clock in ns.
    Running {
        phases: Vec<(String, i64, i64)>,
        /// Set if it was executed although there is a zygote to make it.
        not_forked: Option<NotForked>,
    },
    /// The sandbox could not be built.
    Failed(String),
    /// It could, but the runtime's program does not run in it.
    NotRunnable(String),
    /// The socket asked for, as a file descriptor; none if it could not be made.
    Socket,
    /// The runtime's process has ended.
    Exited(Exit),
}

/// Why a runtime is no copy of a zygote.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct NotForked {
    pub reason: String,
    /// Whether the zygote does not answer.
    pub silent: bool,
    /// Whether it answers that it cannot: a step was refused.
    pub refused: bool,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::Code(code) => write!(f, "exit status {code}"),
            Self::Signal(libc::SIGKILL) => f.write_str("signal: killed"),
            Self::Signal(libc::SIGTERM) => f.write_str("signal: terminated"),
            Self::Signal(libc::SIGSEGV) => f.write_str("signal: segmentation fault"),
            Self::Signal(libc::SIGABRT) => f.write_str("signal: aborted"),
            Self::Signal(libc::SIGSYS) => f.write_str("signal: bad system call"),
            Self::Signal(signal) => write!(f, "signal: {signal}"),
        }
    }
}

/// Sends one packet.
pub(super) fn send<T: Serialize>(socket: RawFd, message: &T, fds: &[RawFd]) -> io::Result<()> {
    let packet = serde_json::to_vec(message)?;
    let parts = [IoSlice::new(&packet)];
    let rights = [ControlMessage::ScmRights(fds)];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    sendmsg::<()>(socket, &parts, control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Receives one packet; `None` when the other side is gone. Descriptors for which this process has no
/// room are missing.
pub(super) fn receive<T: DeserializeOwned>(
    socket: RawFd,
    flags: MsgFlags,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut packet = vec![0; MAX_PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::from_bits_retain(flags.bits().cast_unsigned()) | RecvFlags::CMSG_CLOEXEC;
    // SAFETY: whoever calls this has the socket open meanwhile.
    let socket = unsafe { BorrowedFd::borrow_raw(socket) };
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut beside, flags)?;
    let mut fds = Vec::new();
    for control in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = control {
            fds.extend(received);
        }
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet was too large"));
    }
    if message.bytes == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&packet[..message.bytes])?, fds)))
}

/// A connected pair: the worker's end, which never blocks, and the init's.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (worker, init) = blocking_pair()?;
    let flags = nix::fcntl::OFlag::O_NONBLOCK;
    nix::fcntl::fcntl(&worker, nix::fcntl::FcntlArg::F_SETFL(flags))?;
    debug_assert!(worker.as_raw_fd() != init.as_raw_fd());
    Ok((worker, init))
}

/// A connected pair.
pub(super) fn blocking_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use nix::sys::socket::{
        AddressFamily, SockFlag, SockType, setsockopt, socketpair, sockopt::SndBuf,
    };
    let pair = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    // A packet must fit the buffer whole; the kernel may grant less, and then sending says so.
    let _ = setsockopt(&pair.0, SndBuf, &MAX_PACKET);
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_and_descriptors_arrive() {
        let (worker, init) = pair().unwrap();
        let (read, write) = nix::unistd::pipe().unwrap();
        send(init.as_raw_fd(), &Report::Listening, &[write.as_raw_fd()]).unwrap();
        drop(write);
        let (report, fds) =
            receive::<Report>(worker.as_raw_fd(), MsgFlags::empty()).unwrap().unwrap();
        assert_eq!(report, Report::Listening);
        nix::unistd::write(&fds[0], b"through").unwrap();
        let mut buffer = [0; 16];
        let count = nix::unistd::read(&read, &mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"through");
    }

    #[test]
    fn the_end_is_none_and_the_worker_never_blocks() {
        let (worker, init) = pair().unwrap();
        let nothing = receive::<Report>(worker.as_raw_fd(), MsgFlags::empty()).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(init);
        assert!(receive::<Report>(worker.as_raw_fd(), MsgFlags::empty()).unwrap().is_none());
    }

    #[test]
    fn exits_read_as_lambda_says_them() {
        assert_eq!(Exit::Code(3).to_string(), "exit status 3");
        assert_eq!(Exit::Signal(libc::SIGKILL).to_string(), "signal: killed");
    }
}
