//! `uncia-engine load`: the load generator.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use uncia_load::{Config, Event, LoadError, Signal, Stop};

use crate::config;
use crate::output::{self, BAD_INPUT, FAILED};

/// Runs the configuration in a file, or on standard input (`-`).
pub fn run(config: &Path) -> ExitCode {
    let json = match config::read(config) {
        Ok(json) => json,
        Err(message) => return output::fail(&message, BAD_INPUT),
    };
    let config = match Config::from_json(&json).map_err(LoadError::from) {
        Ok(config) => config,
        Err(error) => return output::fail(&error.to_string(), BAD_INPUT),
    };
    let stop = match Stop::new().map(Arc::new).and_then(|stop| listen(&stop).map(|()| stop)) {
        Ok(stop) => stop,
        Err(error) => {
            return output::fail(&format!("cannot listen for signals: {error}"), FAILED);
        }
    };
    let result = uncia_load::run(&config, &stop, &mut |event: &Event| output::event(&json!(event)));
    match result {
        Ok(done) => match (stop.first_signal(), done.stopped) {
            (Some(signal), _) => ExitCode::from(signal.exit_code()),
            (None, Some(stopped)) => output::fail(&stopped.message, FAILED),
            (None, None) => ExitCode::SUCCESS,
        },
        Err(error) => {
            let code = if error.is_bad_input() { BAD_INPUT } else { FAILED };
            output::fail(&error.to_string(), code)
        }
    }
}

/// Passes SIGINT and SIGTERM on to the run, for as long as the process lives.
fn listen(stop: &Arc<Stop>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let stop = stop.clone();
    std::thread::Builder::new().name("uncia-signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    Some(()) = interrupt.recv() => stop.signal(Signal::Interrupt),
                    Some(()) = terminate.recv() => stop.signal(Signal::Terminate),
                    else => return,
                }
            }
        });
    })?;
    Ok(())
}
