//! `uncia-engine cpu profile`: throttles as a process sees them, in a control group of its own.

use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::json;
use uncia_bandwidth::probe::{self, Config, Event, Stop, child};

use crate::output::{self, BAD_INPUT, FAILED};
use crate::{config, signals};

/// Makes the profile that a configuration asks for.
pub(super) fn run(config: &Path) -> ExitCode {
    let config = match config::read(config)
        .and_then(|json| Config::from_json(&json).map_err(|error| error.to_string()))
    {
        Ok(config) => config,
        Err(message) => return output::fail(&message, BAD_INPUT),
    };
    let (stop, code) = (Arc::new(Stop::default()), Arc::new(AtomicU8::new(0)));
    let command =
        listen(&stop, &code).and_then(|()| probe::end_with_parent()).and_then(|()| itself());
    let mut command = match command {
        Ok(command) => command,
        Err(error) => return output::fail(&format!("cannot begin: {error}"), FAILED),
    };
    let result =
        probe::run(&config, &mut command, &stop, &mut |event: &Event| output::event(&json!(event)));
    match (result, code.load(Ordering::SeqCst)) {
        (Ok(()), code) => ExitCode::from(code),
        (Err(error), _) => {
            let code = if error.is_bad_input() { BAD_INPUT } else { FAILED };
            output::fail(&error.to_string(), code)
        }
    }
}

/// The process of the probe.
pub(super) fn probe() -> ExitCode {
    match child::serve(io::stdin().lock(), io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        // With nobody left to read there is nobody to tell.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => output::fail(&format!("the probe cannot go on: {error}"), FAILED),
    }
}

/// This binary again, as the probe.
fn itself() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["cpu", "probe"]);
    Ok(command)
}

/// Has SIGINT and SIGTERM end the profile, for as long as the process lives.
fn listen(stop: &Arc<Stop>, code: &Arc<AtomicU8>) -> io::Result<()> {
    let (stop, code) = (Arc::clone(stop), Arc::clone(code));
    signals::listen(move |signal| {
        code.store(signal.exit_code(), Ordering::SeqCst);
        stop.stop();
    })
}
