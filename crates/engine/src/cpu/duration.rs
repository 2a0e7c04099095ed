//! `uncia-engine cpu duration`: the closed form for many tasks.
//!
//! The configuration has one key, which says what is asked: `tasks`, each with its own control;
//! `sweep`, one distribution of CPU time under many controls; `jumps`, the quotas at which a task
//! becomes faster at once. Sums and times that may be beyond 64 bits are text.

use std::path::Path;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use uncia_bandwidth::expected::{self, CpuTime, Phase};
use uncia_bandwidth::{Control, Nanos, closed_form};

use crate::config;
use crate::output::{self, BAD_INPUT, FAILED};

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Question {
    Tasks(Vec<Task>),
    Sweep(Sweep),
    Jumps(Jumps),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    period_ns: Nanos,
    quota_ns: Nanos,
    cpu_ns: Nanos,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sweep {
    /// Period and quota.
    controls: Vec<(Nanos, Nanos)>,
    /// CPU time and weight.
    cpu_ns: Vec<(Nanos, u64)>,
    /// After the period began; null: anywhere.
    phase_ns: Option<Nanos>,
    /// Numerator and denominator.
    quantiles: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Jumps {
    period_ns: Nanos,
    cpu_ns: Vec<Nanos>,
    least_ns: Nanos,
    largest_ns: Nanos,
    most: usize,
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

#[derive(Serialize)]
struct Expected {
    /// The mean is `sum_ns` / `cases`.
    sum_ns: String,
    cases: String,
    quantiles_ns: Vec<String>,
}

#[derive(Serialize)]
struct Jump {
    periods: u64,
    quota_ns: Nanos,
    below_ns: String,
    at_ns: String,
    /// Sums over the phases, as many as the period has ns.
    mean_below_sum_ns: String,
    mean_at_sum_ns: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Answer {
    Tasks(Vec<Duration>),
    Sweep(Vec<Expected>),
    Jumps(Vec<Vec<Jump>>),
}

pub(super) fn run(config: &Path) -> ExitCode {
    match answer(config) {
        Ok(answer) => match serde_json::to_string(&answer) {
            Ok(text) => output::print(&format!("{text}\n")),
            Err(error) => output::fail(&format!("cannot write the durations: {error}"), FAILED),
        },
        Err(message) => output::fail(&message, BAD_INPUT),
    }
}

fn answer(config: &Path) -> Result<Answer, String> {
    match config::parse(config)? {
        Question::Tasks(tasks) => durations(&tasks).map(Answer::Tasks),
        Question::Sweep(sweep) => expectations(&sweep).map(Answer::Sweep),
        Question::Jumps(asked) => jumps(&asked).map(Answer::Jumps),
    }
}

fn durations(tasks: &[Task]) -> Result<Vec<Duration>, String> {
    let mut found = Vec::with_capacity(tasks.len());
    for (index, task) in tasks.iter().enumerate() {
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

fn expectations(sweep: &Sweep) -> Result<Vec<Expected>, String> {
    let cpu = CpuTime::new(&sweep.cpu_ns).map_err(|error| error.to_string())?;
    let phase = sweep.phase_ns.map_or(Phase::Random, Phase::At);
    let mut found = Vec::with_capacity(sweep.controls.len());
    for &(period, quota) in &sweep.controls {
        let control = Control::new(period, quota).map_err(|error| error.to_string())?;
        let (sum, cases) =
            expected::mean(control, &cpu, phase).map_err(|error| error.to_string())?;
        let quantiles_ns = sweep
            .quantiles
            .iter()
            .map(|&(numerator, denominator)| {
                expected::quantile(control, &cpu, phase, numerator, denominator)
                    .map(|value| value.to_string())
                    .map_err(|error| error.to_string())
            })
            .collect::<Result<_, _>>()?;
        found.push(Expected { sum_ns: sum.to_string(), cases: cases.to_string(), quantiles_ns });
    }
    Ok(found)
}

fn jumps(asked: &Jumps) -> Result<Vec<Vec<Jump>>, String> {
    let between = (asked.least_ns, asked.largest_ns);
    let one = |&cpu_time: &Nanos| {
        let steps = expected::steps(asked.period_ns, cpu_time, between, asked.most)
            .map_err(|error| error.to_string())?;
        Ok(steps
            .into_iter()
            .map(|step| Jump {
                periods: step.periods,
                quota_ns: step.quota,
                below_ns: step.below.to_string(),
                at_ns: step.at.to_string(),
                mean_below_sum_ns: step.mean_below.to_string(),
                mean_at_sum_ns: step.mean_at.to_string(),
            })
            .collect())
    };
    asked.cpu_ns.iter().map(one).collect()
}
