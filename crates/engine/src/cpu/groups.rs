//! `uncia-engine cpu groups`: control groups of platforms and probes, and groups of resctrl of monitors, whose engine
//! is gone.

use std::process::ExitCode;

use serde::Serialize;
use uncia_bandwidth::cgroup::{Leftover, leftovers};
use uncia_monitor::resctrl::{self, Left};

use crate::output::{self, FAILED};

#[derive(Serialize)]
struct Group {
    folder: String,
    removed: bool,
    /// Why it could not be removed.
    error: Option<String>,
}

impl From<Leftover> for Group {
    fn from(left: Leftover) -> Self {
        Self {
            folder: left.folder.display().to_string(),
            removed: matches!(left.cleared, Some(Ok(()))),
            error: left.cleared.and_then(Result::err).map(|error| error.to_string()),
        }
    }
}

impl From<Left> for Group {
    fn from(left: Left) -> Self {
        Self {
            folder: left.folder.display().to_string(),
            removed: matches!(left.removed, Some(Ok(()))),
            error: left.removed.and_then(Result::err).map(|error| error.to_string()),
        }
    }
}

/// Prints them as JSON, after removing them if asked to.
pub(super) fn run(remove: bool) -> ExitCode {
    let mut groups: Vec<_> = match leftovers(remove) {
        Ok(left) => left.into_iter().map(Group::from).collect(),
        Err(error) => return output::fail(&error.to_string(), FAILED),
    };
    groups.extend(resctrl::leftovers(remove).into_iter().map(Group::from));
    match serde_json::to_string(&groups) {
        Ok(text) => output::print(&format!("{text}\n")),
        Err(error) => output::fail(&format!("cannot write the groups: {error}"), FAILED),
    }
}
