//! Servers that load generators are measured against, all on loopback and on one thread.
//!
//! * `wire hello` is a minimal hyper server, for throughput.
//! * `wire record` notes when each request arrived, for timing.
//! * `wire stall` does so too, and withholds all answers for a while, once.
//!
//! Each prints its URL as the first line on standard output. `record` and `stall` end on SIGINT, on
//! SIGTERM or as they are told, write their log, and print a line of figures in JSON.

mod connection;
mod framing;
mod hello;
mod log;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use server::{Recorder, Stall};

/// Servers that load generators are measured against.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// A minimal hyper server that answers `hello`.
    Hello {
        /// Port on 127.0.0.1; 0 takes a free one.
        #[arg(long, default_value_t = 0)]
        port: u16,
    },
    /// Answers at once and notes when each request arrived.
    Record(Recording),
    /// Like `record`, but withholds all answers for a while, once.
    Stall {
        #[command(flatten)]
        recording: Recording,
        /// Seconds from the first request to the stall.
        #[arg(long, default_value = "3", value_parser = seconds)]
        after: Duration,
        /// Seconds that the stall lasts.
        #[arg(long = "for", default_value = "2", value_parser = seconds)]
        length: Duration,
    },
}

#[derive(Args)]
struct Recording {
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// CSV file that the arrivals are written to at the end.
    #[arg(long)]
    out: PathBuf,
    /// Ends after that many requests.
    #[arg(long)]
    requests: Option<usize>,
    /// Ends when no request has come for so many seconds, counted from the first request.
    #[arg(long, value_parser = seconds)]
    idle: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| format!("{text} seconds: {error}"))
}

fn record(recording: Recording, stall: Option<Stall>) -> std::io::Result<()> {
    let recorder = Recorder::bind(recording.port, stall, recording.requests, recording.idle)?;
    println!("{}", recorder.url()?);
    let log = recorder.run()?;
    log.write(&recording.out)?;
    println!("{}", log.summary());
    Ok(())
}

fn main() -> ExitCode {
    let result = match Cli::parse().mode {
        Mode::Hello { port } => hello::serve(port),
        Mode::Record(recording) => record(recording, None),
        Mode::Stall { recording, after, length } => {
            record(recording, Some(Stall::new(after, length)))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wire: {error}");
            ExitCode::FAILURE
        }
    }
}
