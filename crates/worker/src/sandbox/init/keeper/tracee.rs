//! Processes that stand still, and in which this one makes system calls.
//!
//! A traced process runs none of its own instructions but one: its tracer sets the registers, looks whether
//! the instruction that comes next is the one that makes a system call, and lets it make a single step. Nobody
//! else runs who has the same memory. So no other call gets through, whatever that memory holds.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use libc::{c_int, c_long, user_regs_struct};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;

use super::super::calls::{Argument, Call};
use crate::sandbox::init::seccomp::ARCHITECTURE;

/// How long one step of a traced process may take, on however busy a machine: it waits for nobody.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// Of the instruction `syscall`, in bytes.
const INSTRUCTION: u64 = 2;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Set in a stop's signal if it is one at a system call.
const AT_A_CALL: c_int = 0x80;

/// `linux/elf.h`: the registers of the floating point unit and of vectors.
const NT_X86_XSTATE: c_int = 0x202;
/// More than any processor has of them, in bytes.
const VECTOR_BYTES: usize = 16 * 1024;

/// Calls that a process may make between its signal and the fork that it announces.
const MAX_CALLS_BEFORE_FORK: usize = 1000;

/// Memory in a traced process for what its calls read, in bytes: a filter and names.
const SCRATCH_BYTES: usize = 64 * 1024;

/// What every traced process is traced with: if this one ends, so do they.
const OPTIONS: c_int = libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACESYSGOOD;
/// Of one that forks by order: its children are traced as well.
const FORKS: c_int = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK;

/// Why a traced process does not do what it is to.
#[derive(Debug, thiserror::Error)]
pub(super) enum TraceError {
    #[error("cannot {0}: {1}")]
    Step(String, Errno),
    #[error("it has ended: {0}")]
    Ended(String),
    #[error("it does not go on")]
    Late,
    #[error("it has executed another program")]
    Executed,
    #[error("it does what it was not asked for")]
    Unexpected,
}

pub(super) type Traced<T> = Result<T, TraceError>;

/// What a traced process has come to.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    Call,
    Event(c_int),
    Signal(c_int),
}

/// A process that this one traces. It does not end when this is dropped, but with this process.
#[derive(Debug)]
pub(super) struct Tracee {
    pub pid: i32,
    /// From which every call in it is made: behind an instruction that makes one.
    base: user_regs_struct,
}

/// A process's state outside of its memory that a copy needs to go on from the same point.
pub(super) struct Context {
    registers: user_regs_struct,
    vectors: Vec<u8>,
    /// Blocked signals.
    mask: u64,
    pub umask: u32,
}

/// The kernel's ways to say where a process is that stands at a call.
#[repr(C)]
struct CallInfo {
    op: u8,
    _pad: [u8; 3],
    arch: u32,
    _instruction: u64,
    _stack: u64,
    /// At the entry: the number and the arguments.
    number: u64,
    arguments: [u64; 6],
    _rest: [u64; 2],
}

const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;

/// Makes a request of ptrace(2) whose `data` is a number or an address that lives as long as the call.
fn request(request: libc::c_uint, pid: i32, address: u64, data: u64) -> Result<c_long, Errno> {
    // SAFETY: callers pass addresses only of live memory of the size that the request takes.
    Errno::result(unsafe { libc::ptrace(request, pid, address, data) })
}

fn step(name: &str) -> impl Fn(Errno) -> TraceError {
    move |error| TraceError::Step(name.to_owned(), error)
}

/// Waits until a process has come to something, or has ended.
fn wait_stop(pid: i32, children: &SignalFd) -> Traced<Stop> {
    let deadline = Instant::now() + STEP_TIMEOUT;
    loop {
        if let Some(stop) = look(pid)? {
            return Ok(stop);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(TraceError::Late);
        }
        let mut ready = [PollFd::new(children.as_fd(), PollFlags::POLLIN)];
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        // A signal that interrupts it is as good as one that is read.
        let _ = poll(&mut ready, left);
        while let Ok(Some(_)) = children.read_signal() {}
    }
}

/// What a process has come to, if it has.
fn look(pid: i32) -> Traced<Option<Stop>> {
    let mut status = 0;
    // SAFETY: writes a number to `status`.
    let result = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) };
    match Errno::result(result) {
        Ok(0) => return Ok(None),
        Ok(_) => {}
        Err(Errno::EINTR) => return Ok(None),
        Err(error) => return Err(TraceError::Step("wait for it".into(), error)),
    }
    if libc::WIFEXITED(status) {
        return Err(TraceError::Ended(format!("exit status {}", libc::WEXITSTATUS(status))));
    }
    if libc::WIFSIGNALED(status) {
        return Err(TraceError::Ended(format!("signal {}", libc::WTERMSIG(status))));
    }
    let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
    Ok(Some(match (signal, event) {
        (_, libc::PTRACE_EVENT_EXEC) => return Err(TraceError::Executed),
        (_, event) if event != 0 => Stop::Event(event),
        (signal, _) if signal == libc::SIGTRAP | AT_A_CALL => Stop::Call,
        (signal, _) => Stop::Signal(signal),
    }))
}

fn registers(pid: i32) -> Traced<user_regs_struct> {
    let mut registers = MaybeUninit::<user_regs_struct>::zeroed();
    request(libc::PTRACE_GETREGS, pid, 0, registers.as_mut_ptr() as u64)
        .map_err(step("read its registers"))?;
    // SAFETY: numbers, which the call has written.
    Ok(unsafe { registers.assume_init() })
}

fn set_registers(pid: i32, registers: &user_regs_struct) -> Traced<()> {
    let address = std::ptr::from_ref(registers) as u64;
    request(libc::PTRACE_SETREGS, pid, 0, address).map(drop).map_err(step("set its registers"))
}

/// The number and arguments of the call that a process is about to make.
fn call_of(pid: i32) -> Traced<(c_long, [u64; 6])> {
    let mut info = MaybeUninit::<CallInfo>::zeroed();
    let size = size_of::<CallInfo>() as u64;
    request(libc::PTRACE_GET_SYSCALL_INFO, pid, size, info.as_mut_ptr() as u64)
        .map_err(step("read its system call"))?;
    // SAFETY: numbers, of which the call has written those that there are.
    let info = unsafe { info.assume_init() };
    if info.op != PTRACE_SYSCALL_INFO_ENTRY || info.arch != ARCHITECTURE {
        return Err(TraceError::Unexpected);
    }
    Ok((info.number as c_long, info.arguments))
}

/// Traces a process from now on, which goes on meanwhile.
pub(super) fn trace(pid: i32) -> Traced<()> {
    request(libc::PTRACE_SEIZE, pid, 0, OPTIONS as u64).map(drop).map_err(step("trace it"))
}

/// Lets a process that has forked for its import run on; what it forks itself is not traced.
pub(super) fn let_run(tracee: &Tracee) -> Traced<()> {
    set_options(tracee.pid, OPTIONS | libc::PTRACE_O_TRACEEXEC)?;
    go_on(libc::PTRACE_CONT, tracee.pid, 0)
}

/// Lets a process go for good.
pub(super) fn release(tracee: Tracee) -> Traced<()> {
    go_on(libc::PTRACE_DETACH, tracee.pid, 0)
}

fn set_options(pid: i32, options: c_int) -> Traced<()> {
    request(libc::PTRACE_SETOPTIONS, pid, 0, options as u64)
        .map(drop)
        .map_err(step("set how it is traced"))
}

fn go_on(how: libc::c_uint, pid: i32, signal: c_int) -> Traced<()> {
    request(how, pid, 0, signal as u64).map(drop).map_err(|error| match error {
        Errno::ESRCH => TraceError::Ended("it was killed".into()),
        error => TraceError::Step("let it go on".into(), error),
    })
}

/// Looks whether a running process has announced that it is about to fork; lets it go on if not.
pub(super) fn has_announced(pid: i32) -> Traced<bool> {
    while let Some(stop) = look(pid)? {
        match stop {
            Stop::Signal(libc::SIGSTOP) => return Ok(true),
            Stop::Signal(signal) => go_on(libc::PTRACE_CONT, pid, signal)?,
            Stop::Call | Stop::Event(_) => go_on(libc::PTRACE_CONT, pid, 0)?,
        }
    }
    Ok(false)
}

/// Checks that a process that stands still has not ended.
pub(super) fn look_alive(pid: i32) -> Traced<()> {
    look(pid).map(drop)
}

/// Waits for the announcement of a process that is trusted to make it.
pub(super) fn wait_for_announcement(pid: i32, children: &SignalFd) -> Traced<()> {
    loop {
        match wait_stop(pid, children)? {
            Stop::Signal(libc::SIGSTOP) => return Ok(()),
            Stop::Signal(signal) => go_on(libc::PTRACE_CONT, pid, signal)?,
            Stop::Call | Stop::Event(_) => go_on(libc::PTRACE_CONT, pid, 0)?,
        }
    }
}

/// A fork that a process was about to make when it was stopped for good.
pub(super) struct HeldFork {
    pub tracee: Tracee,
    /// Where the C library wants the copy's number: in the process's own memory.
    number_at: u64,
    pub context: Context,
}

/// Has a process that has announced its fork go on to it, and keeps it there.
pub(super) fn hold_fork(pid: i32, children: &SignalFd) -> Traced<HeldFork> {
    for _ in 0..MAX_CALLS_BEFORE_FORK {
        to_call(pid, children)?;
        let (number, arguments) = call_of(pid)?;
        let number_at = match number {
            libc::SYS_clone => {
                let [flags, _, _, number_at, ..] = arguments;
                let fine = (libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID) as u64;
                let is_fork = flags & !fine == libc::SIGCHLD as u64;
                if !is_fork {
                    return Err(TraceError::Unexpected);
                }
                number_at
            }
            libc::SYS_fork => 0,
            _ => {
                to_call(pid, children)?;
                continue;
            }
        };
        let mut held = registers(pid)?;
        // As the kernel returns to the copy of a process that forks.
        held.rax = 0;
        held.orig_rax = u64::MAX;
        let context = Context {
            registers: held,
            vectors: vectors(pid)?,
            mask: mask(pid)?,
            umask: umask_of(pid)?,
        };
        return Ok(HeldFork { tracee: Tracee { pid, base: held }, number_at, context });
    }
    Err(TraceError::Unexpected)
}

impl HeldFork {
    /// Makes the process that forks one whose calls are made by order: it never forks itself.
    pub(super) fn give_up(&self, children: &SignalFd) -> Traced<()> {
        let pid = self.tracee.pid;
        let mut skipped = registers(pid)?;
        skipped.orig_rax = u64::MAX;
        set_registers(pid, &skipped)?;
        to_call(pid, children)?;
        set_options(pid, OPTIONS | FORKS)?;
        let code = peek(pid, self.tracee.base.rip - INSTRUCTION)?;
        if code[..SYSCALL.len()] == SYSCALL { Ok(()) } else { Err(TraceError::Unexpected) }
    }

    /// The flags of a process that is to go on from this fork, and what they take.
    pub(super) fn clone_arguments(&self, flags: c_int) -> [u64; 6] {
        let with_number = libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID;
        let number = if self.number_at == 0 { 0 } else { with_number };
        [(flags | number | libc::SIGCHLD) as u64, 0, 0, self.number_at, 0, 0]
    }
}

/// Lets a process go on to the next call, or to the end of the one that it is making.
fn to_call(pid: i32, children: &SignalFd) -> Traced<()> {
    loop {
        go_on(libc::PTRACE_SYSCALL, pid, 0)?;
        match wait_stop(pid, children)? {
            Stop::Call => return Ok(()),
            // Nobody gets a signal before it runs.
            Stop::Signal(_) | Stop::Event(_) => {}
        }
    }
}

fn peek(pid: i32, address: u64) -> Traced<[u8; 8]> {
    let mut word = 0_u64;
    // SAFETY: the call itself, not the library's, writes the word to `data`.
    let result = unsafe {
        libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKTEXT, pid, address, &raw mut word)
    };
    Errno::result(result).map_err(step("read its memory"))?;
    Ok(word.to_ne_bytes())
}

fn vectors(pid: i32) -> Traced<Vec<u8>> {
    let mut bytes = vec![0_u8; VECTOR_BYTES];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    request(libc::PTRACE_GETREGSET, pid, NT_X86_XSTATE as u64, &raw mut part as u64)
        .map_err(step("read its registers"))?;
    bytes.truncate(part.iov_len);
    Ok(bytes)
}

fn mask(pid: i32) -> Traced<u64> {
    let mut mask = 0_u64;
    request(libc::PTRACE_GETSIGMASK, pid, size_of::<u64>() as u64, &raw mut mask as u64)
        .map_err(step("read its blocked signals"))?;
    Ok(mask)
}

fn umask_of(pid: i32) -> Traced<u32> {
    let status = super::inspect::status(pid)
        .map_err(|error| TraceError::Step("read its status".into(), error))?;
    let umask = status.get("Umask").and_then(|text| u32::from_str_radix(text, 8).ok());
    umask.ok_or(TraceError::Step("read its umask".into(), Errno::EINVAL))
}

impl Tracee {
    /// Makes a call in the process and returns its result.
    pub(super) fn call(
        &self,
        name: &str,
        number: c_long,
        arguments: [u64; 6],
        children: &SignalFd,
    ) -> Traced<u64> {
        self.aim(number, arguments)?;
        self.step(children)?;
        self.result(name)
    }

    /// Has it stand before a call.
    fn aim(&self, number: c_long, arguments: [u64; 6]) -> Traced<()> {
        let mut registers = self.base;
        registers.rip = self.base.rip - INSTRUCTION;
        registers.rax = number as u64;
        registers.orig_rax = u64::MAX;
        [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9] =
            arguments;
        set_registers(self.pid, &registers)?;
        let code = peek(self.pid, registers.rip)?;
        if code[..SYSCALL.len()] == SYSCALL { Ok(()) } else { Err(TraceError::Unexpected) }
    }

    /// Has it make the one instruction that it stands before; returns the process that this starts.
    fn step(&self, children: &SignalFd) -> Traced<Option<i32>> {
        let mut child = None;
        loop {
            go_on(libc::PTRACE_SINGLESTEP, self.pid, 0)?;
            match wait_stop(self.pid, children)? {
                Stop::Event(libc::PTRACE_EVENT_CLONE | libc::PTRACE_EVENT_FORK) => {
                    let mut pid = 0_u64;
                    request(libc::PTRACE_GETEVENTMSG, self.pid, 0, &raw mut pid as u64)
                        .map_err(step("read its child's number"))?;
                    child = Some(pid as i32);
                }
                Stop::Signal(libc::SIGTRAP) => return Ok(child),
                // Nobody gets a signal before it runs.
                Stop::Event(_) | Stop::Signal(_) | Stop::Call => {}
            }
        }
    }

    fn result(&self, name: &str) -> Traced<u64> {
        let registers = registers(self.pid)?;
        if registers.rip != self.base.rip {
            return Err(TraceError::Unexpected);
        }
        let result = registers.rax as i64;
        // As every C library tells errors.
        if (-4095..0).contains(&result) {
            return Err(TraceError::Step(name.to_owned(), Errno::from_raw(-result as i32)));
        }
        Ok(result as u64)
    }

    /// Makes a call that starts a process, which stands still as well.
    pub(super) fn fork(
        &self,
        number: c_long,
        arguments: [u64; 6],
        children: &SignalFd,
    ) -> Traced<Self> {
        self.aim(number, arguments)?;
        let child = self.step(children)?;
        self.result("start a process")?;
        let pid = child.ok_or(TraceError::Unexpected)?;
        // It stands still before its first instruction.
        wait_stop(pid, children)?;
        Ok(Self { pid, base: self.base })
    }

    /// Ends it.
    pub(super) fn exit(self, children: &SignalFd) -> Traced<()> {
        self.aim(libc::SYS_exit_group, [0; 6])?;
        go_on(libc::PTRACE_CONT, self.pid, 0)?;
        match wait_stop(self.pid, children) {
            Err(TraceError::Ended(_)) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(TraceError::Unexpected),
        }
    }

    /// Kills it, and waits until it has ended.
    pub(super) fn kill(&self, children: &SignalFd) -> Traced<()> {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.pid),
            nix::sys::signal::Signal::SIGKILL,
        );
        loop {
            match wait_stop(self.pid, children) {
                Ok(_) => {}
                Err(TraceError::Ended(_)) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Has it go on as a process that has this context would.
    pub(super) fn assume(&self, context: &Context) -> Traced<()> {
        set_registers(self.pid, &context.registers)?;
        let mut part = libc::iovec {
            iov_base: context.vectors.as_ptr().cast_mut().cast(),
            iov_len: context.vectors.len(),
        };
        request(libc::PTRACE_SETREGSET, self.pid, NT_X86_XSTATE as u64, &raw mut part as u64)
            .map_err(step("set its registers"))?;
        let mask = context.mask;
        let size = size_of::<u64>() as u64;
        request(libc::PTRACE_SETSIGMASK, self.pid, size, &raw const mask as u64)
            .map(drop)
            .map_err(step("set its blocked signals"))
    }

    /// Makes memory in it for what its calls read.
    pub(super) fn scratch(&self, children: &SignalFd) -> Traced<u64> {
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let arguments = [0, SCRATCH_BYTES as u64, protection, flags, u64::MAX, 0];
        self.call("map memory", libc::SYS_mmap, arguments, children)
    }

    pub(super) fn drop_scratch(&self, address: u64, children: &SignalFd) -> Traced<()> {
        let arguments = [address, SCRATCH_BYTES as u64, 0, 0, 0, 0];
        self.call("unmap memory", libc::SYS_munmap, arguments, children).map(drop)
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) -> Traced<()> {
        if bytes.len() > SCRATCH_BYTES {
            return Err(TraceError::Step("write its memory".into(), Errno::E2BIG));
        }
        let own = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let its = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
        // SAFETY: reads `bytes`, and writes to the other process alone.
        let written =
            unsafe { libc::process_vm_writev(self.pid, &raw const own, 1, &raw const its, 1, 0) };
        match Errno::result(written).map_err(step("write its memory"))? {
            written if written as usize == bytes.len() => Ok(()),
            _ => Err(TraceError::Step("write its memory".into(), Errno::EFAULT)),
        }
    }

    /// Makes a call that is given as data; `scratch` is where its structures go.
    pub(super) fn make(&self, call: &Call, scratch: u64, children: &SignalFd) -> Traced<u64> {
        let mut words = [0; 6];
        let mut end = scratch;
        for (word, argument) in words.iter_mut().zip(&call.arguments) {
            *word = match argument {
                Argument::Number(number) => *number as u64,
                Argument::Bytes(bytes) => {
                    self.write(end, bytes)?;
                    let address = end;
                    // The kernel's structures want no more than that.
                    end += (bytes.len() as u64).next_multiple_of(16);
                    address
                }
            };
        }
        match self.call(&call.step, call.number, words, children) {
            Err(TraceError::Step(..)) if call.optional => Ok(0),
            result => result,
        }
    }
}

/// A descriptor of a process that stays the same process's.
pub(super) fn open_process(pid: i32) -> Result<std::os::fd::OwnedFd, Errno> {
    use std::os::fd::FromRawFd;
    // SAFETY: gives a descriptor that nothing else knows.
    let number = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    // SAFETY: as above.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(number as i32) })
}

/// The number by which a traced process gets a descriptor of this one.
pub(super) fn number(descriptor: &impl AsRawFd) -> u64 {
    descriptor.as_raw_fd() as u64
}
