//! `uncia-engine cpu duration`: Equation (2) for many tasks.

use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use uncia_bandwidth::{Control, Nanos, closed_form};

use crate::config;
use crate::output::{self, BAD_INPUT, FAILED};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Configuration {
    tasks: Vec<Task>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    period_ns: Nanos,
    quota_ns: Nanos,
    cpu_ns: Nanos,
}

/// What becomes of a task: ns as text, since they may be above 64 bits.
#[derive(Serialize)]
struct Duration {
    /// Begun with a period: Equation (2).
    ns: String,
    /// Begun at any time: the mean is `sum_ns` / `phases`.
    sum_ns: String,
    phases: String,
}

pub fn run(config: &Path) -> ExitCode {
    match durations(config) {
        Ok(durations) => match serde_json::to_string(&durations) {
            Ok(text) => output::print(&format!("{text}\n")),
            Err(error) => output::fail(&format!("cannot write the durations: {error}"), FAILED),
        },
        Err(message) => output::fail(&message, BAD_INPUT),
    }
}

fn durations(config: &Path) -> Result<Vec<Duration>, String> {
    let json = config::read(config)?;
    let read: Configuration = serde_json::from_str(&json)
        .map_err(|error| format!("the configuration is wrong: {error}"))?;
    let mut found = Vec::with_capacity(read.tasks.len());
    for (index, task) in read.tasks.iter().enumerate() {
        let control = Control::new(task.period_ns, task.quota_ns)
            .map_err(|error| format!("tasks[{index}]: {error}"))?;
        let (sum, phases) = closed_form::mean_duration(control, task.cpu_ns);
        found.push(Duration {
            ns: closed_form::duration(control, task.cpu_ns).to_string(),
            sum_ns: sum.to_string(),
            phases: phases.to_string(),
        });
    }
    Ok(found)
}
