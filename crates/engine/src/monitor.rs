//! `uncia-engine monitor`: monitors beside a run.

use std::io::{self, BufRead, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;

use serde_json::json;
use uncia_monitor::{Config, MonitorError};

use crate::output::{self, BAD_INPUT, FAILED};
use crate::{config, signals};

/// Watches as a configuration says, until a signal or the configuration's duration.
///
/// `until_eof`: the configuration is the first line of standard input, and its end is a signal, too:
/// so that the monitors end with whoever started them, however that ends.
pub(crate) fn run(config: Option<&Path>, until_eof: bool) -> ExitCode {
    let text = match config {
        Some(config) if !until_eof => config::read(config),
        _ => first_line(),
    };
    let config = match text.and_then(|text| Config::from_json(&text).map_err(|it| it.to_string())) {
        Ok(config) => config,
        Err(message) => return output::fail(&message, BAD_INPUT),
    };
    let (stop, stopped) = mpsc::channel();
    let at_end = stop.clone();
    // A receiver that is gone has stopped already.
    if let Err(error) = signals::listen(move |_| {
        let _ = stop.send(());
    }) {
        return output::fail(&format!("cannot listen for signals: {error}"), FAILED);
    }
    if until_eof {
        std::thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
            let _ = at_end.send(());
        });
        return watch(&config, &stopped);
    }
    let code = watch(&config, &stopped);
    drop(at_end);
    code
}

fn watch(config: &Config, stopped: &mpsc::Receiver<()>) -> ExitCode {
    match uncia_monitor::run(config, stopped, &mut |event| output::event(&json!(event))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ MonitorError::Config(_)) => output::fail(&error.to_string(), BAD_INPUT),
        Err(error) => output::fail(&error.to_string(), FAILED),
    }
}

fn first_line() -> Result<String, String> {
    let mut text = String::new();
    let read = io::stdin().lock().read_line(&mut text);
    read.map(|_| text).map_err(|error| format!("cannot read the configuration: {error}"))
}
