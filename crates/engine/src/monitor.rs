//! `uncia-engine monitor`: monitors beside a run.

use std::fs;
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;

use serde_json::json;
use uncia_monitor::{Config, MonitorError, Request, remote};

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
        let _ = stop.send(Request::Stop);
    }) {
        return output::fail(&format!("cannot listen for signals: {error}"), FAILED);
    }
    if until_eof {
        std::thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock().by_ref(), &mut io::sink());
            let _ = at_end.send(Request::Stop);
        });
        return watch(&config, &stopped);
    }
    let code = watch(&config, &stopped);
    drop(at_end);
    code
}

/// Watches for another machine, until that is gone.
///
/// `remove_itself`: this program is a copy that nobody needs once it runs; so nothing is left, however it ends.
pub(crate) fn serve(remove_itself: bool) -> ExitCode {
    if remove_itself {
        let removed = std::env::current_exe().and_then(|copy| {
            fs::remove_file(&copy)?;
            copy.parent().map_or(Ok(()), fs::remove_dir)
        });
        if let Err(error) = removed {
            return output::fail(
                &format!("cannot remove this copy of the engine: {error}"),
                FAILED,
            );
        }
    }
    let (asking, requests) = mpsc::channel();
    let at_signal = asking.clone();
    if let Err(error) = signals::listen(move |_| {
        let _ = at_signal.send(Request::Stop);
    }) {
        return output::fail(&format!("cannot listen for signals: {error}"), FAILED);
    }
    let version = env!("CARGO_PKG_VERSION");
    ended(remote::serve(version, (asking, &requests), |event| output::event(&json!(event))))
}

fn watch(config: &Config, requests: &mpsc::Receiver<Request>) -> ExitCode {
    ended(uncia_monitor::run(config, requests, &mut |event| output::event(&json!(event))))
}

fn ended(result: Result<(), MonitorError>) -> ExitCode {
    match result {
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
