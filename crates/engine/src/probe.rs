//! `uncia-engine probe`: what this machine offers to the embedded platform.

use std::process::ExitCode;

use serde::Serialize;
use uncia_worker::features::Features;
use uncia_worker::instance::{Capabilities, Host};

use crate::output;

/// What this machine offers.
#[derive(Serialize)]
struct Offer {
    #[serde(flatten)]
    capabilities: Capabilities,
    features: Features,
}

/// Tries namespaces and control groups, leaves nothing behind, and prints what works as JSON.
pub(crate) fn run() -> ExitCode {
    let capabilities = Host::probe();
    let features = Features::of(&capabilities, Host::probe_checkpoints());
    match serde_json::to_string_pretty(&Offer { capabilities, features }) {
        Ok(text) => output::print(&format!("{text}\n")),
        Err(error) => {
            output::fail(&format!("cannot describe this machine: {error}"), output::FAILED)
        }
    }
}
