//! What any program prints, line by line; and scripts at the beginning and after the end.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, SysconfVar, sysconf};
use uncia_clock::{NS_PER_S, monotonic_ns};

use super::Monitor;
use crate::config::Asked;
use crate::printed::Printed;
use crate::samples::Samples;

/// Lines that wait to be read; a program that prints more of them between two samples loses the rest.
const MOST_LINES: usize = 10_000;
/// Longer lines are not read to their end.
const MOST_LINE_BYTES: u64 = 64 * 1024;
/// Lines that cannot be read are shown so often, and cut after so many characters.
const MOST_SHOWN: u64 = 3;
const SHOWN_CHARACTERS: usize = 80;
/// A program that is asked to end has this long, and a script after the end this long.
const GRACE: Duration = Duration::from_secs(2);
const AFTER_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Runs programs, and reads what one of them prints.
pub(super) struct Command {
    printing: Option<Printing>,
    companion: Option<Running>,
    after: Option<Program>,
    printed: Printed,
    /// Lines that could not be read so far.
    unreadable: u64,
    understood: u64,
}

/// The program whose lines are read.
struct Printing {
    running: Running,
    lines: Receiver<(i64, String)>,
    lost: Arc<AtomicU64>,
    readers: Vec<JoinHandle<()>>,
    has_ended: bool,
}

/// A program in a process group of its own.
struct Running {
    name: String,
    child: Child,
    /// CPU time in ns that was reported so far.
    reported: i64,
    is_over: bool,
}

impl Command {
    pub(super) fn new(asked: &Asked) -> Result<Self, String> {
        let after = asked.after.as_deref().and_then(program);
        let mut companion = None;
        if let Some(mut program) = asked.start.as_deref().and_then(program) {
            program.stdout(Stdio::null()).stderr(Stdio::null());
            companion = Some(Running::start(&mut program)?);
        }
        let mut printing = None;
        if let Some(mut program) = asked.command.as_deref().and_then(program) {
            program.stdout(Stdio::piped()).stderr(Stdio::piped());
            printing = Some(Printing::start(Running::start(&mut program)?));
        }
        let printed = Printed::new(asked.format, asked.name());
        Ok(Self { printing, companion, after, printed, unreadable: 0, understood: 0 })
    }

    fn read(&mut self, samples: &mut Samples) {
        let Some(printing) = &self.printing else { return };
        for (at, line) in printing.lines.try_iter() {
            match self.printed.read(&line, at, &mut samples.rows) {
                Ok(()) => self.understood += 1,
                Err(why) => {
                    self.unreadable += 1;
                    samples.lost += 1;
                    if self.unreadable <= MOST_SHOWN {
                        let shown: String = line.chars().take(SHOWN_CHARACTERS).collect();
                        samples
                            .warnings
                            .push(format!("a line was not understood ({why}): {shown:?}"));
                    }
                }
            }
        }
        self.printed.flush(samples.now, &mut samples.rows);
        samples.lost += printing.lost.swap(0, Ordering::Relaxed);
    }
}

impl Monitor for Command {
    fn sample(&mut self, samples: &mut Samples) {
        self.read(samples);
        if let Some(running) = &mut self.companion {
            samples.programs_cpu += running.cpu();
        }
        let Some(printing) = &mut self.printing else { return };
        samples.programs_cpu += printing.running.cpu();
        if !printing.has_ended && printing.running.has_ended() {
            printing.has_ended = true;
            let name = &printing.running.name;
            samples.warnings.push(format!("{name} has ended early; rows after that are missing"));
        }
    }

    fn finish(&mut self, samples: &mut Samples) {
        let mut has_ended = false;
        if let Some(printing) = &mut self.printing {
            has_ended = printing.has_ended;
            let ended = printing.running.end();
            samples.programs_cpu += ended;
            for reader in printing.readers.drain(..) {
                // It ends with the pipe, which a process that left the group may hold open.
                if reader.is_finished() || wait_until(GRACE, || reader.is_finished()) {
                    let _ = reader.join();
                }
            }
        }
        self.read(samples);
        if let Some(printing) = &self.printing
            && self.understood == 0
            && !has_ended
        {
            let name = &printing.running.name;
            samples.warnings.push(format!("{name} printed nothing that could be read"));
        }
        if let Some(running) = &mut self.companion {
            samples.programs_cpu += running.end();
        }
        if let Some(mut program) = self.after.take() {
            samples.warnings.extend(run_after(&mut program).err());
        }
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        let printing = self.printing.iter_mut().map(|it| &mut it.running);
        for running in printing.chain(&mut self.companion) {
            running.end();
        }
    }
}

impl Printing {
    fn start(mut running: Running) -> Self {
        let (sender, lines) = sync_channel(MOST_LINES);
        let lost = Arc::new(AtomicU64::new(0));
        // perf writes its counts to standard error.
        let stdout = running.child.stdout.take().map(|it| Box::new(it) as Box<dyn Read + Send>);
        let stderr = running.child.stderr.take().map(|it| Box::new(it) as Box<dyn Read + Send>);
        let readers = [stdout, stderr].into_iter().flatten().map(|stream| {
            let (sender, lost) = (sender.clone(), lost.clone());
            thread::spawn(move || pass_on(stream, &sender, &lost))
        });
        Self { readers: readers.collect(), running, lines, lost, has_ended: false }
    }
}

/// Passes lines on with when they came, until there are no more.
fn pass_on(stream: impl Read, sender: &SyncSender<(i64, String)>, lost: &AtomicU64) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match stream.by_ref().take(MOST_LINE_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        match sender.try_send((monotonic_ns(), line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => drop(lost.fetch_add(1, Ordering::Relaxed)),
            Err(TrySendError::Disconnected(_)) => return,
        }
    }
}

impl Running {
    fn start(program: &mut Program) -> Result<Self, String> {
        let name = program.get_program().to_string_lossy().into_owned();
        // The signals of a terminal are for whoever started the monitors.
        program.stdin(Stdio::null()).process_group(0);
        // Who kills the monitors does not mean to leave what they started. The thread that starts it is to
        // the kernel the parent; it watches until the end.
        // SAFETY: it makes one system call, and allocates nothing.
        unsafe { program.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let child = program.spawn().map_err(|error| format!("{name} cannot be run: {error}"))?;
        Ok(Self { name, child, reported: 0, is_over: false })
    }

    fn id(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or_default())
    }

    /// It stays until it is waited for, so that its number is no other's.
    fn has_ended(&self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        !matches!(waitid(Id::Pid(self.id()), look), Ok(nix::sys::wait::WaitStatus::StillAlive))
    }

    /// CPU time in ns of the program, and of those of its processes that have ended, since this was asked last.
    fn cpu(&mut self) -> i64 {
        let Some(used) = cpu_of(self.id()) else { return 0 };
        let more = (used - self.reported).max(0);
        self.reported += more;
        more
    }

    /// Asks the whole group to end, and kills what does not; gives the CPU time that was not reported yet.
    fn end(&mut self) -> i64 {
        if self.is_over {
            return 0;
        }
        let mut more = self.cpu();
        if !self.has_ended() {
            let _ = killpg(self.id(), Signal::SIGTERM);
            wait_until(GRACE, || self.has_ended());
        }
        more += self.cpu();
        // What it started may live on in its group, whose number is nobody else's until it is waited for.
        let _ = killpg(self.id(), Signal::SIGKILL);
        let _ = self.child.wait();
        self.is_over = true;
        more
    }
}

/// Fields 14 to 17 of `/proc/PID/stat`: user and system, of itself and of children that it has waited for.
fn cpu_of(pid: Pid) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11).take(4);
    let ticks = fields.map(|field| field.parse::<i64>().ok()).sum::<Option<i64>>()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some(ticks * (NS_PER_S / per_second))
}

/// A program and its arguments; none of nothing.
fn program(words: &[String]) -> Option<Program> {
    let (name, arguments) = words.split_first()?;
    let mut program = Program::new(name);
    program.args(arguments);
    Some(program)
}

/// Runs a script to its end; the error is a sentence.
fn run_after(program: &mut Program) -> Result<(), String> {
    program.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = Running::start(program)?;
    let name = running.name.clone();
    if !wait_until(AFTER_TIMEOUT, || running.has_ended()) {
        running.end();
        let seconds = AFTER_TIMEOUT.as_secs();
        return Err(format!("{name} did not end within {seconds} s, and was ended"));
    }
    running.end();
    // Known since it was waited for.
    match running.child.try_wait() {
        Ok(Some(status)) if !status.success() => Err(format!("{name} failed: {status}")),
        _ => Ok(()),
    }
}

/// Whether something comes true in time.
fn wait_until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_does_not_outlive_who_started_it() {
        // To the kernel a thread that ends is a parent that was killed.
        let begin = || {
            let running = Running::start(Program::new("sleep").arg("600")).unwrap();
            let id = running.id();
            std::mem::forget(running);
            id
        };
        let id = thread::spawn(begin).join().unwrap();
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG;
        let has_ended = wait_until(Duration::from_secs(20), || {
            !matches!(waitid(Id::Pid(id), look), Ok(nix::sys::wait::WaitStatus::StillAlive))
        });
        let _ = nix::sys::signal::kill(id, Signal::SIGKILL);
        assert!(has_ended);
    }
}
