//! `uncia-bpf`: programs in the kernel, and what they have counted, as lines of JSON.
//!
//! The engine's monitor `schedule` runs it, and asks it for each sample. All that it has put into the kernel is
//! held by its file descriptors, and gone with it however it ends.

mod kernel;
mod names;
mod schedule;
mod support;

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use clap::{Parser, Subcommand};
use serde_json::json;

use crate::schedule::{LONGEST, Look, Schedule};

/// What cannot be watched here ends with this, after a line that says why.
const UNSUPPORTED: u8 = 3;

#[derive(Parser)]
#[command(name = "uncia-bpf", version, about = "Watches the kernel by programs within it")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Counts what the scheduler does, by control group. A line {"event": "started"} says that it counts, or
    /// one of "unsupported" why it cannot. Then each line of standard input is answered by a line of what was
    /// counted since the last one, until there are no more.
    Schedule {
        /// Where the tree of version 2 is mounted, in which groups have their names.
        #[arg(long, value_name = "DIR")]
        tree: Option<PathBuf>,
        /// Programs from this object file, instead of those that it was built with.
        #[arg(long, value_name = "FILE")]
        object: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let Command::Schedule { tree, object } = Arguments::parse().command;
    let object = match object.map(std::fs::read).transpose() {
        Ok(object) => object,
        Err(error) => return unsupported(&format!("the object file cannot be read: {error}")),
    };
    match Schedule::start(object.as_deref(), tree.as_deref()) {
        Ok(schedule) => match serve(schedule) {
            // Who asked is gone.
            Ok(()) => ExitCode::SUCCESS,
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(sentence) => unsupported(&sentence),
    }
}

fn unsupported(sentence: &str) -> ExitCode {
    let line = json!({"event": "unsupported", "message": sentence});
    let _ = writeln!(io::stdout(), "{line}");
    ExitCode::from(UNSUPPORTED)
}

fn serve(mut schedule: Schedule) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", json!({"event": "started"}))?;
    let (sender, asked) = channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if line.and_then(|_| sender.send(()).map_err(io::Error::other)).is_err() {
                return;
            }
        }
    });
    // Of looks that nobody asked for.
    let mut before: io::Result<Option<Look>> = Ok(None);
    loop {
        let is_asked = match asked.recv_timeout(LONGEST) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        let sum = before.and_then(|sum| schedule.look().map(|look| add(sum, look)));
        if !is_asked {
            before = sum.map(Some);
            continue;
        }
        before = Ok(None);
        let answer = match sum {
            Ok(look) => json!(look),
            Err(error) => {
                json!({"event": "error", "message": format!("counts cannot be read: {error}")})
            }
        };
        writeln!(out, "{answer}")?;
    }
}

fn add(sum: Option<Look>, look: Look) -> Look {
    match sum {
        None => look,
        Some(mut sum) => {
            sum.add(look);
            sum
        }
    }
}
