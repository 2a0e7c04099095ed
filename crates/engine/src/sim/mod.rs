//! `uncia-engine sim`: a cluster in virtual time; JSON in, tables out.
//!
//! Each function has arrivals and phases; what is drawn for it depends on the seed and its name alone.

mod config;
mod requests;
mod rows;
mod slowdowns;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;
use uncia_sim::{Failed, simulate};

use crate::config as configuration;
use crate::output::{self, BAD_INPUT, FAILED};
use config::Configuration;
use rows::Rows;

/// Simulates what a configuration says, and reports a summary of it.
pub(crate) fn run(config: &Path) -> ExitCode {
    let parsed = configuration::parse::<Configuration>(config)
        .and_then(|configuration| Ok((configuration.cluster()?, configuration)));
    let ((setting, trace), configuration) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return output::fail(&message, BAD_INPUT),
    };
    let mut rows = match Rows::create(&configuration, &setting, &trace) {
        Ok(rows) => rows,
        Err(error) => return output::fail(&error.to_string(), FAILED),
    };
    let began = Instant::now();
    let summary = match simulate(&setting, &trace, &mut rows) {
        Ok(summary) => summary,
        Err(error @ Failed::Setting(_)) => return output::fail(&error.to_string(), BAD_INPUT),
        Err(error) => return output::fail(&error.to_string(), FAILED),
    };
    let slowdowns = match rows.close() {
        Ok(slowdowns) => slowdowns,
        Err(error) => return output::fail(&error.to_string(), FAILED),
    };
    let (totals, running) = (summary.totals, summary.running);
    // Integrals are text: they may be above 64 bits.
    output::event(&json!({
           "event": "done",
           "events": summary.events,
           "end_ns": summary.end,
           "arrived": summary.arrived,
           "served": summary.served,
           "preempted": summary.preempted,
           "lost": summary.lost,
           "rejected": summary.rejected,
           "unfinished": summary.unfinished,
           "starts": summary.starts,
           "failures": summary.failures,
           "hints_taken": summary.hints_taken,
           "hints_refused": summary.hints_refused,
    "slowdown": slowdowns.summary(),
           "cpu_offered": summary.cpu_offered.to_string(),
           "in_system": summary.in_system.to_string(),
           "wall_s": began.elapsed().as_secs_f64(),
           "totals": {
               "cpu_capacity": totals.cpu_capacity.to_string(),
               "cpu_reserved": totals.cpu_reserved.to_string(),
               "cpu_own": totals.cpu_own.to_string(),
               "cpu_borrowed": totals.cpu_borrowed.to_string(),
               "cpu_lent": totals.cpu_lent.to_string(),
               "memory_capacity": totals.memory_capacity.to_string(),
               "memory_reserved": totals.memory_reserved.to_string(),
               "memory_used": totals.memory_used.to_string(),
               "memory_idle": totals.memory_idle.to_string(),
               "memory_lent": totals.memory_lent.to_string(),
           },
           "running": {
               "cpu_own": running.cpu_own.to_string(),
               "cpu_borrowed": running.cpu_borrowed.to_string(),
               "cpu_lent": running.cpu_lent.to_string(),
               "memory_used": running.memory.to_string(),
               "memory_lent": running.memory_lent.to_string(),
           },
       }));
    ExitCode::SUCCESS
}
