//! What any program prints, line by line; and scripts at the beginning and after the end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command as Program, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use uncia_clock::monotonic_ns;

use super::Monitor;
use super::programs::{GRACE, Running, wait_until};
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
/// A script after the end has this long.
const AFTER_TIMEOUT: Duration = Duration::from_secs(60);

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

/// A program and its arguments; none of nothing.
fn program(words: &[String]) -> Option<Program> {
    let (name, arguments) = words.split_first()?;
    let mut program = Program::new(name);
    program.args(arguments).stdin(Stdio::null());
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
