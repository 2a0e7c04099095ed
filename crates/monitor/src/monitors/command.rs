//! What any program prints, line by line; and scripts at the beginning and after the end.

use std::process::{Command as Program, Stdio};
use std::time::Duration;

use super::Monitor;
use super::printing::Printing;
use super::programs::{Running, wait_until};
use crate::config::Asked;
use crate::printed::Printed;
use crate::samples::Samples;

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
    /// Whether it was told that the companion has failed.
    has_told: bool,
    /// Lines that could not be read so far.
    unreadable: u64,
    understood: u64,
}

impl Command {
    pub(super) fn new(asked: &Asked) -> Result<Self, String> {
        let mut made = Self {
            printing: None,
            companion: None,
            after: None,
            printed: Printed::new(asked.format, asked.name()),
            has_told: false,
            unreadable: 0,
            understood: 0,
        };
        if let Some(mut program) = asked.start.as_deref().and_then(program) {
            program.stdout(Stdio::null()).stderr(Stdio::null());
            made.companion = Some(Running::start(&mut program)?);
            // From here on there is something to undo, even if the rest fails.
            made.after = after(asked);
        }
        if let Some(mut program) = asked.command.as_deref().and_then(program) {
            program.stdout(Stdio::piped()).stderr(Stdio::piped());
            made.printing = Some(Printing::start(Running::start(&mut program)?));
        }
        made.after = after(asked);
        Ok(made)
    }

    fn read(&mut self, samples: &mut Samples) {
        let Some(printing) = &self.printing else { return };
        for (at, line) in printing.lines() {
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
        samples.lost += printing.take_lost();
    }

    /// Says once if what was started at the beginning has failed.
    fn look_after_companion(&mut self, samples: &mut Samples) {
        let Some(running) = self.companion.as_ref().filter(|_| !self.has_told) else { return };
        if let Some(how) = running.failure() {
            self.has_told = true;
            samples.warnings.push(format!("{} failed: {how}", running.name));
        }
    }
}

impl Monitor for Command {
    fn sample(&mut self, samples: &mut Samples) {
        self.read(samples);
        self.look_after_companion(samples);
        if let Some(running) = &mut self.companion {
            samples.programs_cpu += running.cpu();
        }
        if let Some(printing) = &mut self.printing {
            printing.look_after(samples);
        }
    }

    fn finish(&mut self, samples: &mut Samples) {
        self.look_after_companion(samples);
        let mut has_ended = false;
        if let Some(printing) = &mut self.printing {
            has_ended = printing.has_ended;
            samples.programs_cpu += printing.end();
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
    }

    fn after(&mut self) -> Option<String> {
        run_after(&mut self.after.take()?).err()
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        let printing = self.printing.iter_mut().map(|it| &mut it.running);
        for running in printing.chain(&mut self.companion) {
            running.end();
        }
        // What was begun is undone, whatever stopped the rest.
        let _ = self.after();
    }
}

fn after(asked: &Asked) -> Option<Program> {
    asked.after.as_deref().and_then(program)
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
