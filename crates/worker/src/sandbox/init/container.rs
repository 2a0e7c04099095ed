//! An instance in a container: this process has an OCI runtime make it, and watches it.
//!
//! It keeps its rights, for the runtime's sake; no process of the container sees it, or can name it.

use std::fs;
use std::io::{self, Write};

use nix::sys::signalfd::SignalFd;
use nix::unistd::{Pid, getpid};
use uncia_clock::monotonic_ns;

use super::extensions::Extensions;
use super::{CONTROL, Doing, Failure, Groups, mounts, watch};
use crate::sandbox::wire::{self, Container, InitConfig, Report};

/// Makes the container, runs its program, and returns when that has ended and nothing of it is left. `began`: when this
/// process was given its instance.
pub(super) fn run(
    config: &InitConfig,
    container: &Container,
    groups: &Groups,
    signals: &SignalFd,
    thaw: Option<(fs::File, String)>,
    (mut phases, began): (Vec<(String, i64, i64)>, i64),
) -> Result<(), Failure> {
    let rooted = mounts::build_around(config, container)?;
    let mounted = monotonic_ns();
    let made = make(config, container, groups);
    // Whatever has kept it from being made, the runtime may know it.
    let (runtime, created) = made.inspect_err(|_| drop(container.delete()))?;
    phases.extend(rooted.map(|rooted| ("mount".to_owned(), began, rooted)));
    phases.extend([
        ("mounts".to_owned(), rooted.unwrap_or(began), mounted),
        ("create".to_owned(), mounted, created),
        ("exec".to_owned(), created, monotonic_ns()),
    ]);
    wire::send(CONTROL, &Report::Running { phases, not_forked: None }, &[])
        .doing("report to the worker")?;
    let watched = watch(runtime, Extensions::none(), signals, thaw, Some(container));
    // What it does not delete, the worker does.
    let _ = container.delete();
    watched
}

/// Returns the container's first process, and when it was made.
fn make(
    config: &InitConfig,
    container: &Container,
    groups: &Groups,
) -> Result<(Pid, i64), Failure> {
    let failed = |message: String| {
        let program = config.program.display().to_string();
        // A program that cannot be run is the function's fault, and all else is not.
        if message.contains(&program) || message.contains("executable file") {
            Failure::Program(program, message)
        } else {
            Failure::Container(container.program.display().to_string(), message)
        }
    };
    let pid = container.create().map_err(failed)?;
    let created = monotonic_ns();
    // Now, while what is in it waits: all that it starts begins where it is.
    for process in others().doing("list the container's processes")? {
        for mut group in &groups.join {
            let joined = group.write_all(process.to_string().as_bytes());
            // One of the runtime's own that has ended meanwhile.
            if process == pid {
                joined.doing("put the container into its control groups")?;
            }
        }
    }
    container.start().map_err(failed)?;
    Ok((Pid::from_raw(pid), created))
}

/// All processes of this pid namespace but this one: the container's, and those of the runtime that serve it.
fn others() -> io::Result<Vec<i32>> {
    let init = getpid().as_raw();
    let entries = fs::read_dir("/proc")?.collect::<Result<Vec<_>, _>>()?;
    let numbers = entries.iter().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(numbers.filter(|pid| *pid != init).collect())
}
