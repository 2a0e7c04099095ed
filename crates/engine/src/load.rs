//! `uncia-engine load`: the load generator.

use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use uncia_load::{Config, Event, LoadError, Stop};

use crate::output::{self, BAD_INPUT, FAILED};
use crate::{config, signals};

/// Runs the configuration in a file, or on standard input (`-`).
pub(crate) fn run(config: &Path) -> ExitCode {
    let json = match config::read(config) {
        Ok(json) => json,
        Err(message) => return output::fail(&message, BAD_INPUT),
    };
    let config = match Config::from_json(&json).map_err(LoadError::from) {
        Ok(config) => config,
        Err(error) => return output::fail(&error.to_string(), BAD_INPUT),
    };
    let stop = match listening_stop() {
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

/// A stop that SIGINT and SIGTERM are passed on to.
fn listening_stop() -> io::Result<Arc<Stop>> {
    let stop = Arc::new(Stop::new()?);
    let signalled = Arc::clone(&stop);
    signals::listen(move |signal| signalled.signal(signal))?;
    Ok(stop)
}
