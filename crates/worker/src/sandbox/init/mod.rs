//! The first process of an instance: process 1 of its pid namespace.
//!
//! It is this binary again, a copy of a spawner inside fresh namespaces. It builds what the
//! runtime will see, starts the runtime, and from then on only waits: it reaps orphans, passes
//! SIGTERM on, reports how the runtime ended, and ends with it. It stays outside the function's
//! cgroups, so that nobody is billed for it, and out of the function's reach: another user, not
//! dumpable, and process 1, which no signal from inside can end. While it waits it has the right to
//! signal the runtime, and the system calls that waiting takes.

mod calls;
mod container;
mod extensions;
#[cfg(target_arch = "x86_64")]
mod keeper;
mod mounts;
mod network;
mod overlay;
mod privileges;
mod restore;
mod runtime;
pub(super) mod seccomp;
mod waiting;
pub(super) mod zygote;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::MsgFlags;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use uncia_clock::monotonic_ns;

use self::extensions::Extensions;
pub(super) use self::mounts::{DEV_BYTES, user_line};
pub(super) use self::overlay::temporary;
pub(super) use self::privileges::{OPEN_FILES, OUT_OF_MEMORY};
pub(super) use self::restore::RESTORABLE;
use super::spawn::Title;
use super::wire::{self, Container, Exit, InitConfig, NotForked, Order, Report};

/// What it shows as its first argument.
pub(super) const ARGUMENT: &str = "__instance";

/// The socket to the worker is standard input.
const CONTROL: i32 = 0;

/// What kept an instance from being built.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the worker sent no configuration: {0}")]
    Configuration(io::Error),
    #[error("cannot {0}: {1}")]
    Step(&'static str, Errno),
    #[error("cannot {0}: {1}")]
    Call(String, Errno),
    #[error("cannot {0}: {1}")]
    Io(&'static str, io::Error),
    #[error("cannot open the control file {0}: {1}")]
    ControlFile(String, io::Error),
    #[error("cannot mount {0}: {1}")]
    Mount(String, Errno),
    #[error("cannot mount the image: {0}")]
    Image(&'static str),
    #[error("cannot run {0}: {1}")]
    Program(String, String),
    #[error("{0} makes no container: {1}")]
    Container(String, String),
    #[error("it cannot be restored: {0}")]
    NotRestored(String),
    #[error("the zygote made no copy: {0}")]
    NotForked(String),
    #[error("the zygote does not answer")]
    Silent,
    #[error("the copy of the zygote has ended")]
    CopyEnded,
    #[error("the copy of the zygote takes too long")]
    CopyLate,
}

/// Attaches the step's name to a system error.
trait Doing<T> {
    fn doing(self, step: &'static str) -> Result<T, Failure>;
}

impl<T> Doing<T> for Result<T, Errno> {
    fn doing(self, step: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure::Step(step, error))
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, step: &'static str) -> Result<T, Failure> {
        self.map_err(|error| Failure::Io(step, error))
    }
}

/// Does what an instance's first process does, in a process that has one thread.
pub(super) fn enter(title: Title) -> ExitCode {
    end(run(title))
}

/// Becomes a zygote, in a process that has one thread.
pub(super) fn enter_zygote() -> ExitCode {
    end(zygote::become_one())
}

/// Becomes the keeper of a function's zygote, in a process that has one thread.
pub(super) fn enter_keeper() -> ExitCode {
    #[cfg(target_arch = "x86_64")]
    return end(keeper::become_one());
    #[cfg(not(target_arch = "x86_64"))]
    ExitCode::FAILURE
}

fn end(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // The worker may be gone already, and then nobody wants to know.
            let message = failure.to_string();
            let report = match failure {
                Failure::Program(..) => Report::NotRunnable(message),
                _ => Report::Failed(message),
            };
            let _ = wire::send(CONTROL, &report, &[]);
            ExitCode::FAILURE
        }
    }
}

fn run(title: Title) -> Result<(), Failure> {
    let entered = monotonic_ns();
    privileges::detach()?;
    let Some((network, mut beside)) = receive()? else { return Ok(()) };
    // While all else is made.
    let copy = beside.pop().map(|zygote| zygote::Copy::order(&zygote));
    network::build(&network)?;
    let networked = monotonic_ns();
    // One that is kept for later waits here.
    let copy = match copy {
        Some(Ok(copy)) => Some(copy.waits_before(CONTROL).map(|waits| (copy, waits))),
        Some(Err(failure)) => Some(Err(failure)),
        None => None,
    };
    match &copy {
        Some(Ok((_, true))) => Some(Report::Waiting),
        Some(Err(failure)) => Some(Report::Alone(failure.to_string())),
        Some(Ok((_, false))) | None => None,
    }
    .map_or(Ok(()), |report| wire::send(CONTROL, &report, &[]))
    .doing("report to the worker")?;
    let copy = copy.map(|copy| copy.map(|(copy, _)| copy));
    let Some((config, mut beside)) = receive::<InitConfig>()? else { return Ok(()) };
    title.set(&[ARGUMENT, &config.label]);
    let assigned = monotonic_ns();
    nix::unistd::sethostname(&config.hostname).doing("set the host name")?;

    // Opened while the host's files can still be seen.
    let groups = Groups::open(&config)?;
    let checkpoint = config.restore.as_ref().map(restore::Opened::new).transpose()?;
    let thaw = match &config.thaw {
        Some((path, word)) => Some((control_file(path)?, word.clone())),
        None => None,
    };
    let signals = watch_children()?;
    if config.waits {
        let runtime = waiting::start(config, groups, &signals, title)?;
        let none = Extensions::none();
        return runtime.map_or(Ok(()), |runtime| watch(runtime, none, &signals, thaw, None));
    }
    let mut phases = vec![("network".to_owned(), entered, networked)];
    if let Some(container) = &config.container {
        return container::run(&config, container, &groups, &signals, thaw, (phases, assigned));
    }
    let rooted = mounts::build(&config)?;
    let mounted = monotonic_ns();

    let mut extensions = Extensions::none();
    phases.extend(rooted.map(|rooted| ("mount".to_owned(), assigned, rooted)));
    phases.push(("mounts".to_owned(), rooted.unwrap_or(assigned), mounted));
    let mut prepared = mounted;
    if !config.extensions.is_empty() {
        extensions = Extensions::start(&config, &groups, beside.pop())?;
        if !extensions.wait(&signals)? {
            return Ok(());
        }
        prepared = monotonic_ns();
        phases.push(("extensions".to_owned(), mounted, prepared));
    }
    let (runtime, how, not_forked) = match checkpoint {
        Some(checkpoint) => restore(&config, &groups, &checkpoint)?,
        None => start(&config, &groups, copy)?,
    };
    drop(groups);
    privileges::keep_only_kill(&config)?;
    phases.push((how.to_owned(), prepared, monotonic_ns()));
    wire::send(CONTROL, &Report::Running { phases, not_forked }, &[])
        .doing("report to the worker")?;
    drop(config);
    watch(runtime, extensions, &signals, thaw, None)
}

/// Starts the runtime: the copy of a zygote if one was ordered, and else, or if that fails, its program.
/// Returns its number, what the start is called, and why it is no copy although it should be.
fn start(
    config: &InitConfig,
    groups: &Groups,
    copy: Option<Result<zygote::Copy, Failure>>,
) -> Result<(Pid, &'static str, Option<NotForked>), Failure> {
    let started = copy.map(|copy| copy.and_then(|copy| copy.become_runtime(config, groups)));
    let not_forked = match started {
        Some(Ok(pid)) => return Ok((pid, "fork", None)),
        Some(Err(failure)) => Some(NotForked {
            silent: matches!(failure, Failure::Silent),
            refused: matches!(failure, Failure::NotForked(_)),
            reason: failure.to_string(),
        }),
        None => None,
    };
    if config.restorable {
        restore::reserve_number()?;
    }
    Ok((runtime::start(config, groups, None)?, "exec", not_forked))
}

/// Restores the runtime from a checkpoint, or if that fails starts it, and says why.
fn restore(
    config: &InitConfig,
    groups: &Groups,
    checkpoint: &restore::Opened,
) -> Result<(Pid, &'static str, Option<NotForked>), Failure> {
    match checkpoint.restore(groups) {
        Ok(pid) => Ok((pid, "restore", None)),
        Err(failure) => {
            // What is left of it, if anything is.
            drop(reap());
            let reason = failure.to_string();
            let not_forked = NotForked { silent: false, refused: true, reason };
            Ok((runtime::start(config, groups, None)?, "exec", Some(not_forked)))
        }
    }
}

/// What the worker sends, with the descriptors beside it; `None` if it has no use for this process any
/// more.
fn receive<T: DeserializeOwned>() -> Result<Option<(T, Vec<OwnedFd>)>, Failure> {
    wire::receive(CONTROL, MsgFlags::empty()).map_err(Failure::Configuration)
}

/// The control groups that the runtime's process is to be in.
struct Groups {
    /// The files through which it joins them.
    join: Vec<File>,
    /// The folder in which it can begin, instead of joining by the last of them.
    begin_in: Option<File>,
}

/// What a process that has begun in its folder has still to join.
fn left_to_join(join: &[File]) -> &[File] {
    join.split_last().map_or(&[], |(_, rest)| rest)
}

impl Groups {
    fn open(config: &InitConfig) -> Result<Self, Failure> {
        let join = config.join.iter().map(control_file).collect::<Result<_, _>>()?;
        // Without it, the process joins.
        let begin_in = config.begin_in.as_ref().and_then(|folder| File::open(folder).ok());
        Ok(Self { join, begin_in })
    }
}

fn control_file(path: impl AsRef<std::path::Path>) -> Result<File, Failure> {
    let path = path.as_ref();
    File::options()
        .write(true)
        .open(path)
        .map_err(|error| Failure::ControlFile(path.display().to_string(), error))
}

/// SIGCHLD as a descriptor. All signals are blocked in this process from its first instruction: the
/// worker started it so.
fn watch_children() -> Result<SignalFd, Failure> {
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        .doing("watch for ended processes")
}

/// Waits until the worker has sent something, or is gone, or a process has ended; says whether it may
/// have been the worker.
fn wait_for_news(signals: &SignalFd) -> Result<bool, Failure> {
    // SAFETY: descriptor 0 is the control socket until the process ends.
    let control = unsafe { BorrowedFd::borrow_raw(CONTROL) };
    let mut ready =
        [PollFd::new(control, PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
    match poll(&mut ready, PollTimeout::NONE) {
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(false),
        Err(error) => return Err(Failure::Step("wait", error)),
    }
    while let Ok(Some(_)) = signals.read_signal() {}
    Ok(ready[0].any() == Some(true))
}

/// Waits until the runtime and all extensions have ended or the worker vanishes. When this returns, the process ends, and the
/// kernel ends every other process of the namespace. `container`: what the runtime is in, if it is in one.
fn watch(
    runtime: Pid,
    mut extensions: Extensions,
    signals: &SignalFd,
    thaw: Option<(File, String)>,
    container: Option<&Container>,
) -> Result<(), Failure> {
    // From here on the socket tells when the worker dies, and then a frozen instance must be thawed,
    // for which there would be no time after SIGKILL.
    nix::sys::prctl::set_pdeathsig(None).doing("outlive the worker for a moment")?;
    let mut runs = true;
    loop {
        let told = wait_for_news(signals)?;
        for (pid, exit) in reap() {
            if pid == runtime {
                runs = false;
                // Without a worker there is nobody to tell.
                let _ = wire::send(CONTROL, &Report::Exited(exit), &[]);
            } else {
                extensions.ended(pid, exit);
            }
        }
        if !runs && extensions.is_empty() {
            return Ok(());
        }
        if !told {
            continue;
        }
        match wire::receive::<Order>(CONTROL, MsgFlags::MSG_DONTWAIT) {
            Ok(Some((Order::Terminate, _))) => {
                // It may have ended in this very moment, which the next turn finds out.
                match container {
                    _ if !runs => {}
                    Some(container) => drop(container.signal("TERM")),
                    None => drop(kill(runtime, Signal::SIGTERM)),
                }
            }
            Ok(Some((Order::End, _))) => return Ok(()),
            // It runs.
            Ok(Some((Order::StartRuntime, _))) => {}
            Ok(Some((Order::Socket, _))) => {
                // Without a worker there is nobody to tell.
                let _ = network::hand_socket_over();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(None) | Err(_) => {
                // A frozen process does not die of SIGKILL on cgroup v1.
                if let Some((mut file, word)) = thaw {
                    let _ = file.write_all(word.as_bytes());
                }
                return Ok(());
            }
        }
    }
}

/// Collects ended processes.
fn reap() -> Vec<(Pid, Exit)> {
    let mut ended = Vec::new();
    loop {
        let (pid, exit) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, Exit::Code(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Exit::Signal(signal as i32)),
            Err(Errno::EINTR) | Ok(WaitStatus::Stopped(..) | WaitStatus::Continued(_)) => continue,
            _ => return ended,
        };
        ended.push((pid, exit));
    }
}

/// Replaces a standard stream, as by `/dev/null`.
fn replace_stream(by: impl AsFd, number: i32) -> Result<(), Failure> {
    // SAFETY: dup2 onto a standard stream, which nothing in this process owns as a value.
    let result = unsafe { libc::dup2(by.as_fd().as_raw_fd(), number) };
    Errno::result(result).map(drop).doing("replace the standard streams")
}

fn null() -> Result<OwnedFd, Failure> {
    use nix::fcntl::{OFlag, open};
    open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty())
        .doing("open /dev/null")
}
