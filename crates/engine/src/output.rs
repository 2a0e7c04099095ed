//! What goes to standard output and standard error, and the exit codes.

use std::io::Write;
use std::process::ExitCode;

use serde_json::{Value, json};

/// Something ran and failed.
pub(crate) const FAILED: u8 = 1;
/// The configuration or the command line was wrong.
pub(crate) const BAD_INPUT: u8 = 2;

/// Writes one event as a JSON line to standard error.
pub(crate) fn event(value: &Value) {
    // With nobody left to read it there is nobody to tell.
    let _ = writeln!(std::io::stderr().lock(), "{value}");
}

/// How errors and warnings are written to standard error.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Messages {
    /// As JSON lines, for programs.
    Json,
    /// As sentences, for people.
    Text,
}

impl Messages {
    /// Reports an error, and gives the exit code.
    pub(crate) fn fail(self, message: &str, code: u8) -> ExitCode {
        if self == Self::Json {
            return fail(message, code);
        }
        // As in `event`.
        let _ = writeln!(std::io::stderr().lock(), "error: {message}");
        ExitCode::from(code)
    }
}

/// Reports an error as an event, and gives the exit code.
pub(crate) fn fail(message: &str, code: u8) -> ExitCode {
    event(&json!({"event": "error", "message": message}));
    ExitCode::from(code)
}

/// Writes text to standard output; a closed pipe is the reader's choice, not an error.
pub(crate) fn print(text: &str) -> ExitCode {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write to standard output: {error}"), FAILED)
        }
        _ => ExitCode::SUCCESS,
    }
}
