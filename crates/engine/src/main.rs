//! `uncia-engine`: all of Uncia's Rust as one binary.
//!
//! Configuration goes in as JSON, tables come out as Arrow IPC, progress as JSON lines on stderr.
//! SIGINT and SIGTERM end every subcommand cleanly.

mod bb;
mod config;
mod cpu;
mod load;
#[cfg(target_os = "linux")]
mod monitor;
mod output;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod serve;
mod signals;
mod sim;
mod warnings;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use crate::output::Messages;

#[derive(Parser)]
#[command(name = "uncia-engine", version, about = "Uncia's engine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the embedded platform until SIGINT or SIGTERM.
    #[cfg(target_os = "linux")]
    Serve(serve::Arguments),
    /// Generate load as a JSON configuration says.
    Load {
        /// The configuration: a file, or - for standard input.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// CPU bandwidth control: simulate it, and more.
    #[command(subcommand)]
    Cpu(cpu::Command),
    /// Simulate a cluster that serves functions as a JSON configuration says; writes tables.
    Sim {
        /// The configuration: a file, or - for standard input.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make a BB Trace as a JSON configuration says; its invocations go to standard output.
    Bb {
        /// The configuration: a file, or - for standard input.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Watch the machine and its control groups as a JSON configuration says, until SIGINT or SIGTERM.
    #[cfg(target_os = "linux")]
    Monitor {
        /// The configuration: a file, or - for standard input.
        #[arg(long, value_name = "FILE", required_unless_present_any = ["until_eof", "remote"])]
        config: Option<PathBuf>,
        /// The configuration is the first line of standard input; watch until that ends.
        #[arg(long)]
        until_eof: bool,
        /// Serve another machine over the standard streams: rows are on standard output.
        #[arg(long, conflicts_with_all = ["config", "until_eof"])]
        remote: bool,
        /// This program is a copy for this alone: delete it, and its folder, once it runs.
        #[arg(long, requires = "remote")]
        remove_itself: bool,
    },
    /// Print what the engine declares as JSON: tables, settings, policies, runtimes or clients.
    Schema {
        #[arg(value_enum, default_value_t = SchemaOf::Tables)]
        of: SchemaOf,
    },
    /// Print what this machine offers to the embedded platform as JSON.
    #[cfg(target_os = "linux")]
    Probe,
}

impl Command {
    /// How it writes errors and warnings to stderr.
    fn messages(&self) -> Messages {
        match self {
            #[cfg(target_os = "linux")]
            Self::Serve(arguments) => arguments.messages,
            _ => Messages::Json,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum SchemaOf {
    /// What measurements land in.
    Tables,
    /// Settings of the embedded platform and of its functions.
    #[cfg(target_os = "linux")]
    Settings,
    /// Choices that the embedded platform leaves to policies, and the policies' names.
    #[cfg(target_os = "linux")]
    Policies,
    /// Language runtimes of the embedded platform.
    #[cfg(target_os = "linux")]
    Runtimes,
    /// Their clients of the Runtime API, for images of functions.
    #[cfg(target_os = "linux")]
    Clients,
}

impl SchemaOf {
    fn json(self) -> String {
        match self {
            Self::Tables => uncia_record::schema_json(),
            #[cfg(target_os = "linux")]
            Self::Settings => uncia_worker::settings::settings_json(),
            #[cfg(target_os = "linux")]
            Self::Policies => uncia_worker::settings::policies_json(),
            #[cfg(target_os = "linux")]
            Self::Runtimes => uncia_worker::settings::runtimes_json(),
            #[cfg(target_os = "linux")]
            Self::Clients => uncia_worker::settings::clients_json(),
        }
    }
}

fn main() -> ExitCode {
    // An instance's first process is this binary again; it must become one before any thread or
    // runtime exists.
    #[cfg(target_os = "linux")]
    if let Some(code) = uncia_worker::instance::enter_if_asked() {
        return code;
    }
    let command = Arguments::parse().command;
    let _printer = warnings::print(command.messages());
    match command {
        #[cfg(target_os = "linux")]
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Load { config } => load::run(&config),
        Command::Sim { config } => sim::run(&config),
        Command::Bb { config } => bb::run(&config),
        #[cfg(target_os = "linux")]
        Command::Monitor { remote: true, remove_itself, .. } => monitor::serve(remove_itself),
        #[cfg(target_os = "linux")]
        Command::Monitor { config, until_eof, .. } => monitor::run(config.as_deref(), until_eof),
        Command::Cpu(command) => cpu::run(&command),
        Command::Schema { of } => output::print(&of.json()),
        #[cfg(target_os = "linux")]
        Command::Probe => probe::run(),
    }
}
