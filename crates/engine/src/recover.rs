//! `uncia-engine recover`: finishes the tables that a crash left.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use crate::output::{self, FAILED};

/// Converts each stream; one that can't be converted does not keep the others from it.
pub fn run(streams: &[PathBuf]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for stream in streams {
        match uncia_record::recover(stream) {
            Ok(recovered) => output::event(&json!({
                "event": "recovered",
                "stream": stream,
                "parquet": recovered.parquet,
                "rows": recovered.rows,
                "whole": recovered.whole,
            })),
            Err(error) => code = output::fail(&error.to_string(), FAILED),
        }
    }
    code
}
