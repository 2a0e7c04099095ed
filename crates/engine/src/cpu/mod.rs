//! `uncia-engine cpu`: CPU bandwidth control.

mod duration;
#[cfg(target_os = "linux")]
mod groups;
#[cfg(target_os = "linux")]
mod profile;
mod simulate;
mod sweep;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// How long tasks take by the closed form; prints JSON.
    Duration(Configured),
    /// Simulate groups with a quota; writes tables.
    Simulate(Configured),
    /// Simulate many settings, each under many quotas; prints durations or throttles as Arrow.
    Sweep(Configured),
    /// Throttles as a process sees them, in a control group of its own; writes tables.
    #[cfg(target_os = "linux")]
    Profile(Configured),
    /// The control groups that killed profiles left; prints JSON.
    #[cfg(target_os = "linux")]
    Groups {
        /// Remove them.
        #[arg(long)]
        remove: bool,
    },
    /// The process that sees them: orders on standard input, answers on standard output.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Probe,
}

#[derive(Args)]
pub(crate) struct Configured {
    /// The configuration: a file, or - for standard input.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    match command {
        Command::Duration(Configured { config }) => duration::run(config),
        Command::Simulate(Configured { config }) => simulate::run(config),
        Command::Sweep(Configured { config }) => sweep::run(config),
        #[cfg(target_os = "linux")]
        Command::Profile(Configured { config }) => profile::run(config),
        #[cfg(target_os = "linux")]
        Command::Groups { remove } => groups::run(*remove),
        #[cfg(target_os = "linux")]
        Command::Probe => profile::probe(),
    }
}
