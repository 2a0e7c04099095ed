//! Runs a load configuration without the rest of the engine: `load CONFIG.json`.

#![expect(clippy::print_stderr, reason = "its output")]

use std::process::ExitCode;

use uncia_load::{Config, Stop};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: load CONFIG.json");
        return ExitCode::from(2);
    };
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        let config = Config::from_json(&std::fs::read_to_string(&path)?)?;
        let stop = Stop::new()?;
        uncia_load::run(&config, &stop, &mut |event| {
            eprintln!("{}", serde_json::to_string(event).expect("an event is plain data"));
        })?;
        Ok(())
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
