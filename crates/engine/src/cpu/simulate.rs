//! `uncia-engine cpu simulate`: settings in, tables out.
//!
//! A simulated probe, task or pattern is a row of `invocations`, whose function is the setting's
//! name; a time in which it could not run is a span `throttle`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use uncia_bandwidth::sim::{self, Seen, Setting};
use uncia_record::{Epoch, Invocation, Span, StreamWriter, Text};

use crate::config;
use crate::output::{self, BAD_INPUT, FAILED};

const MICRO_PER_VCPU: u128 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    #[serde(default)]
    seed: u64,
    settings: Vec<Setting>,
    /// Where `invocations.arrows` and `spans.arrows` are made.
    output: PathBuf,
}

pub(super) fn run(config: &Path) -> ExitCode {
    let configuration = match config::parse::<Configuration>(config) {
        Ok(configuration) => configuration,
        Err(message) => return output::fail(&message, BAD_INPUT),
    };
    for (index, setting) in configuration.settings.iter().enumerate() {
        if let Err(error) = setting.check() {
            let message = format!("settings[{index}] ({}): {error}", setting.name);
            return output::fail(&message, BAD_INPUT);
        }
    }
    match simulate(&configuration) {
        Ok(ticks) => {
            output::event(&json!({"event": "done", "ticks": ticks}));
            ExitCode::SUCCESS
        }
        Err(message) => output::fail(&message, FAILED),
    }
}

fn simulate(configuration: &Configuration) -> Result<u64, String> {
    let file = |name: &str| configuration.output.join(name);
    let sentence = |error: uncia_record::RecordError| error.to_string();
    let mut invocations =
        StreamWriter::<Invocation>::create(&file("invocations.arrows"), Epoch::UNIX)
            .map_err(sentence)?;
    let mut spans =
        StreamWriter::<Span>::create(&file("spans.arrows"), Epoch::UNIX).map_err(sentence)?;
    let mut ticks = 0;
    for (index, setting) in configuration.settings.iter().enumerate() {
        let seed = configuration.seed.wrapping_add(index as u64);
        let outcome = sim::simulate(setting, seed).map_err(|error| error.to_string())?;
        ticks += outcome.ticks;
        for (number, seen) in outcome.seen.iter().enumerate() {
            let id = format!("{index}-{number}");
            for &(start, end) in &seen.gaps {
                spans.push(&span(&id, start, end)).map_err(sentence)?;
            }
            invocations.push(&invocation(setting, id, seen)).map_err(sentence)?;
        }
    }
    invocations.close().map_err(sentence)?;
    spans.close().map_err(sentence)?;
    Ok(ticks)
}

fn span(id: &str, start: i64, end: i64) -> Span {
    Span {
        invocation: Some(id.to_owned()),
        name: text("throttle"),
        start,
        end,
        clock: text("function"),
        ..Span::default()
    }
}

fn invocation(setting: &Setting, id: String, seen: &Seen) -> Invocation {
    let share = setting
        .quota_ns
        .map(|quota| u128::from(quota) * MICRO_PER_VCPU / u128::from(setting.period_ns));
    Invocation {
        platform: Some(text("simulated")),
        function: text(&setting.name),
        invocation: id,
        attempt: 1,
        outcome: text("ok"),
        started: Some(seen.start),
        ended: Some(seen.end),
        execution: Some(seen.end - seen.start),
        allocated_cpu: share.and_then(|share| i64::try_from(share).ok()),
        cpu_user: Some(seen.cpu),
        throttled_count: i64::try_from(seen.throttled_periods).ok(),
        throttled_time: Some(seen.throttled_time),
        ..Invocation::default()
    }
}

fn text(words: &str) -> Text {
    Arc::from(words)
}
