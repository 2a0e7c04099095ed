//! Starting processes in fresh namespaces, by small processes that live as long as the worker.
//!
//! An instance's first process is this binary again. To execute it for each instance takes longer than
//! all namespaces together: the loader relocates it, and every page is touched anew. So *spawners* have
//! been executed beforehand, one for each processor, and an instance's first process is a copy of one of
//! them. A spawner is a process of one thread that has nothing of the worker's and nothing of any
//! instance's; its copies have another parent, the worker, which waits for them.
//!
//! A first process asks the kernel to be killed when its parent dies, and to the kernel the parent is the
//! *thread* that started the spawner: one that lives as long as the worker, and not a pool's, which may
//! shrink.

mod copy;
mod title;

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, Command, ExitCode, Stdio};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::sys::signal;
use nix::sys::socket::MsgFlags;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::threads::{self, Failure};
use super::wire;

pub(super) use title::Title;

/// The hidden subcommand of a spawner.
const ARGUMENT: &str = "__spawner";

/// Has this process start instances if it was started to.
///
/// Call it before anything else in `main`: it needs a process with one thread.
pub fn enter_if_asked() -> Option<ExitCode> {
    (std::env::args_os().nth(1)? == ARGUMENT).then(copy::serve)
}

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
    pub purpose: Purpose,
}

/// What a process is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// An instance, of which it is the first process.
    Instance,
    /// To become a zygote. It has no pid namespace of its own, or it could put no process into others.
    Zygote,
    /// To keep a function's zygote; as a zygote otherwise.
    Keeper,
}

/// Worker to spawner: start a first process. Its control socket and its output come beside it.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    label: String,
    own_network: bool,
    user_namespace: bool,
    purpose: Purpose,
}

/// Spawner to worker.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The process's number; a descriptor of it comes beside it.
    Started(i32),
    /// The kernel's error number.
    Failed(i32),
}

/// A started process. Dropping it ends it, and has it reaped.
pub(super) struct Child {
    pub pid: i32,
    pidfd: Option<OwnedFd>,
}

impl Child {
    pub(super) fn pidfd(&self) -> &OwnedFd {
        self.pidfd.as_ref().expect("only taken by value")
    }

    /// From now on it is the caller's to reap.
    pub(super) fn into_pidfd(mut self) -> OwnedFd {
        self.pidfd.take().expect("only taken here, by value")
    }

    /// Ends and reaps it. Blocks until it has ended.
    pub(super) fn end(mut self) {
        if let Some(pidfd) = self.pidfd.take() {
            end(&pidfd);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(pidfd) = self.pidfd.take() {
            threads::run_aside(move || end(&pidfd));
        }
    }
}

/// Ends a child and reaps it.
fn end(pidfd: &OwnedFd) {
    // It may have ended already, but nobody else has reaped it.
    let _ = kill(pidfd);
    let _ = reap(pidfd);
}

type Job = (Launch, oneshot::Sender<io::Result<Child>>);

/// The threads that have processes started; clones are the same.
#[derive(Clone)]
pub(super) struct Spawner(Arc<Threads>);

struct Threads {
    /// Taken when there are to be no more.
    jobs: Mutex<Option<mpsc::Sender<Job>>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Spawner {
    /// `executable` is this binary, or another one that calls [`super::enter_if_asked`] first.
    pub(super) fn new(executable: &Path, failure: &Failure) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let mut handles = Vec::new();
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            let (executable, queue) = (executable.to_owned(), queue.clone());
            let (begun, begins) = mpsc::channel();
            let body = move || {
                let mut process = match SpawnerProcess::start(&executable) {
                    Ok(process) => Some(process),
                    // Whoever asked for it has not gone meanwhile.
                    Err(error) => return drop(begun.send(Err(error))),
                };
                drop(begun.send(Ok(())));
                loop {
                    let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((launch, answer)) = job else { return };
                    let started = launched(&mut process, &executable, &launch);
                    // If nobody waits for the answer any more, dropping the child ends it.
                    drop(answer.send(started.map_err(io::Error::from)));
                }
            };
            handles.push(threads::start("uncia-spawner", "starts processes", failure, body)?);
            begins.recv().map_err(io::Error::other)??;
        }
        let jobs = Mutex::new(Some(jobs));
        Ok(Self(Arc::new(Threads { jobs, handles: Mutex::new(handles) })))
    }

    pub(super) async fn start(&self, launch: Launch) -> io::Result<Child> {
        let (answer, started) = oneshot::channel();
        let gone = || io::Error::other("the threads that start processes have ended");
        // Cloned, so that nothing is locked while it is used.
        let jobs = self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        jobs.ok_or_else(gone)?.send((launch, answer)).map_err(|_| gone())?;
        started.await.map_err(|_| gone())?
    }

    /// How many processes start others.
    pub(super) fn processes(&self) -> usize {
        self.0.handles.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Ends the threads and their processes; nothing is started any more. Blocks until they have ended.
    pub(super) fn end(&self) {
        drop(self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let handles =
            std::mem::take(&mut *self.0.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for handle in handles {
            // Its panic has been reported.
            let _ = handle.join();
        }
    }
}

/// Has a spawner start a process. One that has ended is started again, or by the next that is wanted: what is
/// missing now, such as descriptors or memory, may be there then.
fn launched(
    spawner: &mut Option<SpawnerProcess>,
    executable: &Path,
    launch: &Launch,
) -> Result<Child, LaunchError> {
    let process = match spawner.take() {
        Some(process) => process,
        None => SpawnerProcess::start(executable)?,
    };
    let started = process.launch(launch);
    if !matches!(&started, Err(LaunchError::Ended)) {
        *spawner = Some(process);
        return started;
    }
    // Somebody has killed it, or the kernel has, for lack of memory. It may have made the process
    // already: whoever wants one again needs other sockets.
    tracing::warn!("{}; it is started again", LaunchError::Ended);
    end_unannounced(&launch.control);
    drop(process);
    *spawner = SpawnerProcess::start(executable)
        .inspect_err(|error| tracing::warn!("it cannot be started yet: {error}"))
        .ok();
    started
}

/// Why a first process was not started.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error("a process that starts instances has ended unexpectedly")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<LaunchError> for io::Error {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Io(error) => error,
            LaunchError::Ended => Self::other(error),
        }
    }
}

/// Whether nothing was started because a spawner was killed, which may be tried again.
pub(super) fn lost_its_spawner(error: &io::Error) -> bool {
    matches!(error.get_ref(), Some(inner) if inner.is::<LaunchError>())
}

/// A spawner, seen from the worker. Dropping it ends it.
struct SpawnerProcess {
    process: process::Child,
    socket: Option<OwnedFd>,
}

impl SpawnerProcess {
    fn start(executable: &Path) -> io::Result<Self> {
        let (socket, theirs) = wire::blocking_pair()?;
        let process = Command::new(executable)
            .arg0("uncia-instance")
            .args([ARGUMENT, &title::room()])
            .env_clear()
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A terminal's signals are the worker's.
            .process_group(0)
            .spawn()?;
        Ok(Self { process, socket: Some(socket) })
    }

    fn launch(&self, launch: &Launch) -> Result<Child, LaunchError> {
        let socket = self.socket.as_ref().ok_or(LaunchError::Ended)?.as_raw_fd();
        let order = Order {
            label: launch.label.clone(),
            own_network: launch.own_network,
            user_namespace: launch.user_namespace,
            purpose: launch.purpose,
        };
        let beside = [launch.control.as_raw_fd(), launch.output.as_raw_fd()];
        wire::send(socket, &order, &beside).map_err(|_| LaunchError::Ended)?;
        match wire::receive(socket, MsgFlags::empty()) {
            Ok(Some((Answer::Started(pid), mut beside))) => {
                let Some(pidfd) = beside.pop() else {
                    // A child of this thread, so that the number is nobody else's.
                    end_by_number(Pid::from_raw(pid));
                    return Err(io::Error::from_raw_os_error(libc::EMFILE).into());
                };
                Ok(Child { pid, pidfd: Some(pidfd) })
            }
            Ok(Some((Answer::Failed(errno), _))) => Err(io::Error::from_raw_os_error(errno).into()),
            Ok(None) | Err(_) => Err(LaunchError::Ended),
        }
    }
}

impl Drop for SpawnerProcess {
    fn drop(&mut self) {
        // It ends when the socket is closed.
        drop(self.socket.take());
        let _ = self.process.wait();
    }
}

/// Ends and reaps the first process that a spawner has made before it was killed, and has not announced:
/// a child of this thread that has this socket.
fn end_unannounced(control: &OwnedFd) {
    let Ok(socket) = fs::read_link(format!("/proc/self/fd/{}", control.as_raw_fd())) else {
        return;
    };
    let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    for child in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        let descriptors = fs::read_dir(format!("/proc/{child}/fd")).into_iter().flatten().flatten();
        let mut files = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        if files.any(|file| file == socket) {
            end_by_number(Pid::from_raw(child));
        }
    }
}

/// Ends and reaps a child of this thread, which nobody else reaps.
fn end_by_number(child: Pid) {
    let _ = signal::kill(child, signal::Signal::SIGKILL);
    let _ = nix::sys::wait::waitpid(child, None);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_nobody_knows_of_is_ended() {
        let (_worker, theirs) = wire::blocking_pair().unwrap();
        let sleep = |stdin: Stdio| Command::new("sleep").arg("600").stdin(stdin).spawn().unwrap();
        let mut lost = sleep(theirs.try_clone().unwrap().into());
        let mut other = sleep(Stdio::null());
        end_unannounced(&theirs);
        assert!(lost.wait().is_err());
        assert!(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
