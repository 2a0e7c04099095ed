//! `uncia-engine cpu`: CPU bandwidth control.

mod duration;
mod simulate;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

#[derive(Subcommand)]
pub enum Command {
    /// How long tasks take by the closed form; prints JSON.
    Duration(Configured),
    /// Simulate groups with a quota; writes tables.
    Simulate(Configured),
}

#[derive(Args)]
pub struct Configured {
    /// The configuration: a file, or - for standard input.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Duration(Configured { config }) => duration::run(config),
        Command::Simulate(Configured { config }) => simulate::run(config),
    }
}
