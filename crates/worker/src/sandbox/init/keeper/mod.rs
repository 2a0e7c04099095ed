//! The keeper of a function's zygote: makes instances of a process that has run the function's imports.
//!
//! That process has run the function's code, so nothing that it says or does counts, and it has no rights
//! with which a copy of it could enter another instance's sandbox. So the keeper does not ask it. It has
//! started an interpreter that has run nothing of any function, the *original*, and keeps it standing still,
//! with the rights that making instances takes. The original begot the *zygote*: another process, in a
//! sandbox of the function's own, without rights and under the filter, but with the same memory. When that
//! has run the imports and is about to fork, it stands still as well, for good. To make an instance, the
//! keeper has the original fork, has the copy do step by step what an instance's runtime does before it
//! runs (`tracee`), and only then lets it go on from where the zygote was about to: in the sandbox of the
//! instance, as its user, without rights.
//!
//! It takes orders as a zygote of the runtime does (`super::zygote`). The first one makes the zygote.

mod inspect;
mod tracee;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signalfd::SignalFd;
use nix::sys::socket::MsgFlags;
use nix::unistd::{ForkResult, execve, fork};

use self::tracee::{HeldFork, TraceError, Traced, Tracee, number};
use super::calls::Call;
use super::seccomp::SystemCallFilter;
use super::zygote::{NAMESPACES, Order, Report};
use super::{
    CONTROL, Doing, Failure, left_to_join, mounts, privileges, receive, replace_stream, runtime,
    watch_children,
};
use crate::sandbox::rootfs::TASK;
use crate::sandbox::wire::{self, KeeperReport, ZygoteConfig};

/// The variable that tells an interpreter to become an original.
const ORIGINAL_VARIABLE: &str = "_UNCIA_IMPORTS";

/// Has the C library use no restartable sequences: by them, memory says where a process goes on.
const NO_SEQUENCES: &str = "GLIBC_TUNABLES=glibc.pthread.rseq=0";

/// Where the original has a descriptor of the keeper, far above what it opens.
const KEEPER: RawFd = 100;

/// Where a copy reads its environment.
const ENVIRONMENT: u64 = 3;

/// Of `waitid` and its kin: also who was not made by a plain fork.
const ANY_CHILD: u64 = libc::__WALL as u64;

/// Becomes a keeper. Returns once the worker has no more use for it, or why it cannot go on.
pub(in crate::sandbox::init) fn become_one() -> Result<(), Failure> {
    privileges::detach()?;
    let Some((config, _)) = receive::<ZygoteConfig>()? else { return Ok(()) };
    let children = watch_children()?;
    match Keeper::start(&config, children) {
        Ok(keeper) => keeper.serve(),
        Err(error) => refuse(&error.to_string()),
    }
}

/// Tells the worker why there will be no copies.
fn refuse(reason: &str) -> Result<(), Failure> {
    wire::send(CONTROL, &KeeperReport::Refused(reason.to_owned()), &[])
        .doing("report to the worker")
}

/// Starts the interpreter that becomes the original. It waits for this process to trace it.
fn start_original(config: &ZygoteConfig) -> Result<i32, Failure> {
    let own = tracee::open_process(std::process::id() as i32).doing("open its own number")?;
    let (mut traced, go) = io::pipe().doing("make a pipe")?;
    // SAFETY: this process has one thread, so the child may do whatever its parent could.
    match unsafe { fork() }.doing("start a process")? {
        ForkResult::Parent { child } => {
            drop(traced);
            tracee::trace(child.as_raw()).map_err(|error| Failure::NotForked(error.to_string()))?;
            drop(go);
            Ok(child.as_raw())
        }
        ForkResult::Child => {
            drop(go);
            let _ = traced.read(&mut [0]);
            let Err(failure) = become_original(config, &own);
            // Whoever reads what the zygote prints learns of it.
            let _ = writeln!(io::stderr(), "{failure}");
            // SAFETY: ends the child alone.
            unsafe { libc::_exit(127) }
        }
    }
}

fn become_original(
    config: &ZygoteConfig,
    keeper: &OwnedFd,
) -> Result<std::convert::Infallible, Failure> {
    unshare(CloneFlags::CLONE_NEWNS).doing("make a namespace of mounts")?;
    mounts::build_bare(&config.root)?;
    let null = super::null()?;
    replace_stream(&null, 0)?;
    privileges::keep_for_zygote()?;
    runtime::close_rest().doing("close descriptors")?;
    // SAFETY: dup2 onto a number that nothing in this process owns as a value; exec leaves it open.
    Errno::result(unsafe { libc::dup2(keeper.as_raw_fd(), KEEPER) })
        .doing("hand a descriptor over")?;
    let text = |value: &[u8]| {
        CString::new(value).map_err(|_| Failure::Step("pass a zero byte on", Errno::EINVAL))
    };
    let list = |values: &mut dyn Iterator<Item = &String>| {
        values.map(|value| text(value.as_bytes())).collect::<Result<Vec<_>, _>>()
    };
    let original = [format!("{ORIGINAL_VARIABLE}={ENVIRONMENT}"), NO_SEQUENCES.to_owned()];
    let program = text(config.program.as_os_str().as_bytes())?;
    let arguments = list(&mut config.arguments.iter())?;
    let environment = list(&mut config.environment.iter().chain(&original))?;
    let Err(error) = execve(&program, &arguments, &environment);
    Err(Failure::Program(config.program.display().to_string(), error.to_string()))
}

/// A copy that was ordered: a process in the namespace of the sandbox's processes that stands still, with
/// the original's memory, and starts the copy once it is known what that is to be.
struct Ordered {
    /// The sandbox's first process.
    first: OwnedFd,
    socket: OwnedFd,
    output: OwnedFd,
    parent: Tracee,
}

/// Whether there is a zygote.
enum State {
    /// Nobody has ordered it.
    Missing,
    /// It runs the function's imports, in the sandbox of this first process.
    Imports {
        zygote: i32,
        first: i32,
    },
    Stands(Box<HeldFork>),
}

struct Keeper {
    original: HeldFork,
    /// The original's own descriptor of itself.
    itself: u64,
    children: SignalFd,
    state: State,
    ordered: Vec<Ordered>,
    filter: Option<Vec<u8>>,
}

/// Why it stops.
enum End {
    /// Nobody needs it any more.
    Unneeded,
    Refused(String),
}

impl From<TraceError> for End {
    fn from(error: TraceError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl Keeper {
    fn start(config: &ZygoteConfig, children: SignalFd) -> Traced<Self> {
        let failed = |error: Failure| TraceError::Ended(error.to_string());
        let pid = start_original(config).map_err(failed)?;
        tracee::wait_for_announcement(pid, &children)?;
        let original = tracee::hold_fork(pid, &children)?;
        original.give_up(&children)?;
        let arguments = [pid as u64, 0, 0, 0, 0, 0];
        let itself =
            original.tracee.call("open its number", libc::SYS_pidfd_open, arguments, &children)?;
        let filter = config.filter.then(|| SystemCallFilter::for_functions().to_bytes());
        Ok(Self { original, itself, children, state: State::Missing, ordered: Vec::new(), filter })
    }

    fn serve(mut self) -> Result<(), Failure> {
        let reported = loop {
            match self.turn() {
                Ok(()) => {}
                Err(End::Unneeded) => break Ok(()),
                Err(End::Refused(reason)) => break refuse(&reason),
            }
        };
        // They would end with this process, but nobody might collect them.
        for ordered in &self.ordered {
            self.end(&ordered.parent);
        }
        let _ = self.original.tracee.kill(&self.children);
        reported
    }

    /// Waits for something to do, and does it.
    fn turn(&mut self) -> Result<(), End> {
        // SAFETY: descriptor 0 is the control socket until the process ends.
        let control = unsafe { BorrowedFd::borrow_raw(CONTROL) };
        let mut ready = vec![
            PollFd::new(control, PollFlags::POLLIN),
            PollFd::new(self.children.as_fd(), PollFlags::POLLIN),
        ];
        ready.extend(
            self.ordered.iter().map(|it| PollFd::new(it.socket.as_fd(), PollFlags::POLLIN)),
        );
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(End::Refused(format!("cannot wait: {error}"))),
        }
        let ready: Vec<_> = ready.iter().map(|it| it.any() == Some(true)).collect();
        while let Ok(Some(_)) = self.children.read_signal() {}
        self.look_at_processes()?;
        self.look_at_import()?;
        // From the last, whose removal moves none that comes after.
        for index in (0..self.ordered.len()).rev().filter(|index| ready[2 + index]) {
            let ordered = self.ordered.remove(index);
            self.become_runtime(ordered)?;
        }
        if ready[0] {
            match wire::receive::<u8>(CONTROL, MsgFlags::MSG_DONTWAIT) {
                Ok(Some((_, beside))) => self.order(beside),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(None) | Err(_) => return Err(End::Unneeded),
            }
        }
        Ok(())
    }

    /// Looks whether those that stand still are alive: somebody may have killed one, or the kernel has.
    fn look_at_processes(&self) -> Result<(), End> {
        tracee::look_alive(self.original.tracee.pid)?;
        match &self.state {
            State::Stands(zygote) => tracee::look_alive(zygote.tracee.pid)?,
            State::Missing | State::Imports { .. } => {}
        }
        Ok(())
    }

    /// Looks whether the import has ended, and whether the process that ran it can have copies.
    fn look_at_import(&mut self) -> Result<(), End> {
        let State::Imports { zygote, first } = self.state else { return Ok(()) };
        if !tracee::has_announced(zygote)? {
            return Ok(());
        }
        let held = tracee::hold_fork(zygote, &self.children)?;
        match inspect::obstacle(zygote, first) {
            Ok(None) => {}
            Ok(Some(obstacle)) => return Err(End::Refused(obstacle)),
            Err(error) => return Err(End::Refused(format!("cannot look at it: {error}"))),
        }
        self.state = State::Stands(Box::new(held));
        wire::send(CONTROL, &KeeperReport::Ready, &[]).map_err(|_| End::Unneeded)
    }

    /// Makes what will start the copy that was ordered.
    fn order(&mut self, beside: Vec<OwnedFd>) {
        let Ok([first, socket, output]) = <[OwnedFd; 3]>::try_from(beside) else { return };
        let told = match self.state {
            State::Imports { .. } => Err("its import has not ended".to_owned()),
            State::Missing | State::Stands(_) => {
                self.parent_in(&first).map_err(|error| error.to_string())
            }
        };
        let report = match &told {
            Ok(_) => Report::Waits,
            Err(reason) => Report::Failed(reason.clone()),
        };
        // It may have ended meanwhile.
        let reached = wire::send(socket.as_raw_fd(), &report, &[]).is_ok();
        match told {
            Ok(parent) if reached => self.ordered.push(Ordered { first, socket, output, parent }),
            Ok(parent) => self.end(&parent),
            Err(_) => {}
        }
    }

    /// A process with the original's memory among those of a sandbox.
    fn parent_in(&self, first: &OwnedFd) -> Traced<Tracee> {
        let original = &self.original.tracee;
        let namespace = self.hand_over(original, number(first))?;
        let enter = |descriptor: u64| {
            let arguments = [descriptor, libc::CLONE_NEWPID as u64, 0, 0, 0, 0];
            original.call("enter a namespace", libc::SYS_setns, arguments, &self.children)
        };
        let parent = enter(namespace).and_then(|_| {
            let flags = [libc::CLONE_VM as u64, 0, 0, 0, 0, 0];
            original.fork(libc::SYS_clone, flags, &self.children)
        });
        enter(self.itself)?;
        let close = [namespace, 0, 0, 0, 0, 0];
        original.call("close a descriptor", libc::SYS_close, close, &self.children)?;
        parent
    }

    /// Gives a traced process a descriptor of this one; returns its number there.
    fn hand_over(&self, tracee: &Tracee, descriptor: u64) -> Traced<u64> {
        let arguments = [KEEPER as u64, descriptor, 0, 0, 0, 0];
        tracee.call("take a descriptor", libc::SYS_pidfd_getfd, arguments, &self.children)
    }

    /// Makes the copy, as its first process tells it.
    fn become_runtime(&mut self, ordered: Ordered) -> Result<(), End> {
        let order =
            wire::receive::<Order<'static>>(ordered.socket.as_raw_fd(), MsgFlags::MSG_DONTWAIT);
        let Ok(Some((order, groups))) = order else {
            // Its instance is not wanted any more.
            self.end(&ordered.parent);
            return Ok(());
        };
        let made = self.make(&ordered, &order, groups);
        let report = match &made {
            Ok(copy) => inspect::own_number(copy.pid)
                .map_or_else(|| Report::Failed("it has no number".into()), Report::Runs),
            Err(error) => Report::Failed(error.to_string()),
        };
        // Nobody waits for it if its program was executed instead: it must not meet it.
        let reached = wire::send(ordered.socket.as_raw_fd(), &report, &[]).is_ok();
        let copy = match made {
            Ok(copy) if reached && matches!(report, Report::Runs(_)) => copy,
            Ok(copy) => {
                self.end(&copy);
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        if matches!(self.state, State::Missing) {
            let first = inspect::number_of(&ordered.first)
                .ok_or_else(|| End::Refused("its first process has no number".into()))?;
            tracee::let_run(&copy)?;
            self.state = State::Imports { zygote: copy.pid, first };
            return Ok(());
        }
        // Killed in this moment, it is its instance's end.
        let _ = tracee::release(copy);
        Ok(())
    }

    fn make(&self, ordered: &Ordered, order: &Order<'_>, groups: Vec<OwnedFd>) -> Traced<Tracee> {
        let parent = &ordered.parent;
        let mut groups: Vec<_> = groups.into_iter().map(File::from).collect();
        let begin_in = if order.begin_in { groups.pop() } else { None };
        let forked = match &self.state {
            State::Stands(zygote) => self.fork(parent, zygote, &groups, begin_in.as_ref()),
            State::Missing | State::Imports { .. } => self.beget(parent, &groups),
        };
        self.end(parent);
        let copy = forked?;
        match self.equip(&copy, ordered, order) {
            Ok(()) => Ok(copy),
            Err(error) => {
                self.end(&copy);
                Err(error)
            }
        }
    }

    /// Starts the zygote, in the control groups that its memory counts in.
    fn beget(&self, parent: &Tracee, groups: &[File]) -> Traced<Tracee> {
        // The kernel charges memory to who had it first.
        join(groups, self.original.tracee.pid)?;
        join(groups, parent.pid)?;
        // Its number in its sandbox is none that a copy has in its own: libraries know by their number that
        // they are in a copy.
        let shared = [libc::CLONE_VM as u64, 0, 0, 0, 0, 0];
        parent.fork(libc::SYS_clone, shared, &self.children)?.exit(&self.children)?;
        let any = [u64::MAX, 0, ANY_CHILD, 0, 0, 0];
        parent.call("wait for a process", libc::SYS_wait4, any, &self.children)?;
        // What it says about signals counts for its copies.
        let flags = libc::CLONE_VM | libc::CLONE_SIGHAND;
        parent.fork(libc::SYS_clone, self.original.clone_arguments(flags), &self.children)
    }

    /// Starts a copy, in its control groups.
    fn fork(
        &self,
        parent: &Tracee,
        zygote: &HeldFork,
        groups: &[File],
        begin_in: Option<&File>,
    ) -> Traced<Tracee> {
        let (copy, groups) = if let Some(folder) = begin_in {
            (self.fork_into(parent, zygote, folder)?, left_to_join(groups))
        } else {
            let arguments = zygote.clone_arguments(0);
            (parent.fork(libc::SYS_clone, arguments, &self.children)?, groups)
        };
        if groups.is_empty() {
            return Ok(copy);
        }
        match self.join(&copy, groups) {
            Ok(()) => Ok(copy),
            Err(error) => {
                self.end(&copy);
                Err(error)
            }
        }
    }

    /// Has a copy join its control groups. The kernel makes whoever moves another process wait, for 10 ms
    /// and more, and not who moves itself.
    fn join(&self, copy: &Tracee, groups: &[File]) -> Traced<()> {
        let scratch = copy.scratch(&self.children)?;
        for group in groups {
            let descriptor = self.hand_over(copy, number(group))?;
            let own = Call::new("join a control group", libc::SYS_write)
                .number(descriptor as i64)
                .bytes(b"0".to_vec())
                .number(1);
            copy.make(&own, scratch, &self.children)?;
            let close = [descriptor, 0, 0, 0, 0, 0];
            copy.call("close a descriptor", libc::SYS_close, close, &self.children)?;
        }
        copy.drop_scratch(scratch, &self.children)
    }

    /// Starts a copy that begins in a control group of version 2. To join one, it would wait for 10 ms and
    /// more.
    fn fork_into(&self, parent: &Tracee, zygote: &HeldFork, folder: &File) -> Traced<Tracee> {
        let [flags, _, _, number_at, ..] = zygote.clone_arguments(0);
        // SAFETY: numbers, for which 0 means that there is none.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.flags = (flags & !(libc::SIGCHLD as u64)) | runtime::CLONE_INTO_CGROUP;
        arguments.child_tid = number_at;
        arguments.exit_signal = libc::SIGCHLD as u64;
        arguments.cgroup = self.hand_over(parent, number(folder))?;
        let size = size_of_val(&arguments);
        // SAFETY: a structure of numbers without gaps, which lives as long as the slice.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const arguments).cast::<u8>(), size) };
        let scratch = parent.scratch(&self.children)?;
        parent.write(scratch, bytes)?;
        let words = [scratch, size as u64, 0, 0, 0, 0];
        let copy = parent.fork(libc::SYS_clone3, words, &self.children);
        // All processes with this memory have it.
        parent.drop_scratch(scratch, &self.children)?;
        let copy = copy?;
        copy.drop_scratch(scratch, &self.children)?;
        Ok(copy)
    }

    /// Has a copy do what a runtime does before it runs, and puts it where its original was about to go on.
    fn equip(&self, copy: &Tracee, ordered: &Ordered, order: &Order<'_>) -> Traced<()> {
        let children = &self.children;
        let call = |name: &str, number, arguments: [u64; 3]| {
            let [first, second, third] = arguments;
            copy.call(name, number, [first, second, third, 0, 0, 0], children)
        };
        call("start a session", libc::SYS_setsid, [0; 3])?;
        let output = self.hand_over(copy, number(&ordered.output))?;
        for stream in [1, 2] {
            call("set a stream", libc::SYS_dup3, [output, stream, 0])?;
        }
        let environment = environment_file(&order.environment)
            .map_err(|error| TraceError::Step("pass the environment on".into(), error))?;
        let environment = self.hand_over(copy, number(&environment))?;
        let first = self.hand_over(copy, number(&ordered.first))?;
        call("enter the sandbox", libc::SYS_setns, [first, NAMESPACES as u64, 0])?;
        let scratch = copy.scratch(children)?;
        let open = Call::new("open /dev/null", libc::SYS_openat)
            .number(libc::AT_FDCWD)
            .bytes(b"/dev/null\0".to_vec())
            .number(libc::O_RDWR);
        let null = copy.make(&open, scratch, children)?;
        call("set a stream", libc::SYS_dup3, [null, 0, 0])?;
        if environment != ENVIRONMENT {
            call("set a descriptor", libc::SYS_dup3, [environment, ENVIRONMENT, 0])?;
        }
        let all = libc::c_uint::MAX.into();
        call("close descriptors", libc::SYS_close_range, [ENVIRONMENT + 1, all, 0])?;
        let (file, adjustment) = privileges::OUT_OF_MEMORY;
        // It keeps no function from running.
        let _ = fs::write(file.replace("self", &copy.pid.to_string()), adjustment);
        let folder = Call::new("enter the code's folder", libc::SYS_chdir)
            .bytes([TASK.as_bytes(), b"\0"].concat());
        copy.make(&folder, scratch, children)?;
        let context = match &self.state {
            State::Stands(zygote) => &zygote.context,
            State::Missing | State::Imports { .. } => &self.original.context,
        };
        call("set the umask", libc::SYS_umask, [context.umask.into(), 0, 0])?;
        for step in &order.calls {
            copy.make(step, scratch, children)?;
        }
        if let Some(program) = &self.filter {
            install(copy, program, scratch, children)?;
        }
        for step in &order.last {
            copy.make(step, scratch, children)?;
        }
        copy.drop_scratch(scratch, children)?;
        inspect::check_copy(copy.pid, self.filter.is_some())
            .map_err(|reason| TraceError::Step(format!("let it run: {reason}"), Errno::EPERM))?;
        copy.assume(context)
    }

    /// Ends a process, and has the original forget it if it is its child.
    fn end(&self, tracee: &Tracee) {
        // It may have ended by itself.
        let _ = tracee.kill(&self.children);
        let own = [tracee.pid as u64, 0, ANY_CHILD | libc::WNOHANG as u64, 0, 0, 0];
        let _ = self.original.tracee.call("wait", libc::SYS_wait4, own, &self.children);
    }
}

/// Has a process join control groups, as it would itself: by their files, and for one thread.
fn join(groups: &[File], pid: i32) -> Traced<()> {
    for mut group in groups {
        let error = |error: io::Error| {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
            TraceError::Step("join a control group".into(), errno)
        };
        group.write_all(pid.to_string().as_bytes()).map_err(error)?;
    }
    Ok(())
}

/// A file without a name that holds an environment as JSON.
fn environment_file(environment: &[(String, String)]) -> Result<OwnedFd, Errno> {
    // SAFETY: makes a file; the name is a string that ends.
    let descriptor =
        Errno::result(unsafe { libc::memfd_create(c"environment".as_ptr(), libc::MFD_CLOEXEC) })?;
    // SAFETY: it is new, and nothing else knows it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
    let bytes = serde_json::to_vec(environment).map_err(|_| Errno::EINVAL)?;
    let errno = |error: io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO));
    file.write_all(&bytes).map_err(errno)?;
    io::Seek::rewind(&mut file).map_err(errno)?;
    Ok(file.into())
}

/// Filters a copy's system calls, once it may not gain rights any more.
fn install(copy: &Tracee, program: &[u8], scratch: u64, children: &SignalFd) -> Traced<()> {
    // As `struct sock_fprog` is laid out: the number of instructions, of 8 bytes each, and where they are.
    let instructions = scratch + 16;
    let head = [(program.len() as u64 / 8).to_ne_bytes(), instructions.to_ne_bytes()].concat();
    copy.write(scratch, &[&head, program].concat())?;
    let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    let operation = libc::SECCOMP_SET_MODE_FILTER.into();
    let arguments = [operation, flags, scratch, 0, 0, 0];
    copy.call("filter system calls", libc::SYS_seccomp, arguments, children).map(drop)
}
