//! `uncia-engine probe`: what this machine offers to the embedded platform.

use std::process::ExitCode;

use uncia_worker::instance::Host;

use crate::output;

/// Tries namespaces and control groups, leaves nothing behind, and prints what works as JSON.
pub(crate) fn run() -> ExitCode {
    match serde_json::to_string_pretty(&Host::probe()) {
        Ok(text) => output::print(&format!("{text}\n")),
        Err(error) => {
            output::fail(&format!("cannot describe this machine: {error}"), output::FAILED)
        }
    }
}
