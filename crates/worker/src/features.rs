//! What makes the platform fast, or holds functions back, and is on here.

use std::collections::BTreeMap;

use serde::Serialize;
use uncia_process::idle;

use crate::instance::{Capabilities, OciRuntime, Runtime};
use crate::meterlog;
use crate::settings;

/// What is on here. Why something is off is among the [`Capabilities`]' warnings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Features {
    /// The format of the journal that rows go through into the log.
    pub journal_format: u16,
    /// The runtimes whose packages are compiled when they are stored.
    pub byte_code: Vec<&'static str>,
    /// What instances can be started from.
    pub start_from: Vec<&'static str>,
    /// What they cannot be started from, and why: a sentence each.
    pub not_started_from: BTreeMap<&'static str, String>,
    /// Whether a function's instances can be restored from a checkpoint of one that has served: with all that its
    /// invocations have left in memory.
    pub warm_checkpoints: bool,
    /// The OCI runtimes whose containers instances can be in, with what their programs say of their version; null
    /// for those that are not installed.
    pub oci_runtimes: BTreeMap<&'static str, Option<String>>,
    /// Whether the system calls of functions are filtered.
    pub system_call_filter: bool,
    /// Why CPUs cannot be kept awake, whatever `stay_awake` says; none if they can be.
    pub not_awake: Option<String>,
}

impl Features {
    /// What is on with these capabilities. `checkpoints`: why there are none, if that is so. Waits for programs.
    pub fn of(capabilities: &Capabilities, checkpoints: Result<(), String>) -> Self {
        let compiled = Runtime::all().iter().filter(|it| it.definition().byte_code().is_some());
        let not_started_from = without_copies(capabilities, checkpoints);
        let mut start_from = settings::start_choices();
        start_from.retain(|kind| !not_started_from.contains_key(kind));
        Self {
            warm_checkpoints: start_from.contains(&"checkpoint"),
            journal_format: meterlog::JOURNAL_FORMAT,
            byte_code: compiled.map(|it| it.name()).collect(),
            start_from,
            not_started_from,
            oci_runtimes: OciRuntime::all().iter().map(|it| (it.name(), it.version())).collect(),
            system_call_filter: capabilities.seccomp,
            not_awake: idle::obstacle(),
        }
    }
}

/// What takes copies of processes that have started, where there can be none.
fn without_copies(
    capabilities: &Capabilities,
    checkpoints: Result<(), String>,
) -> BTreeMap<&'static str, String> {
    let mut without = BTreeMap::new();
    if !capabilities.root {
        let reason = "Only root's copies may enter the sandbox of another user; functions are started \
                      as prepared instead.";
        without.extend([("zygote", reason.to_owned()), ("function_zygote", reason.to_owned())]);
    }
    if cfg!(not(target_arch = "x86_64")) {
        let reason = "Only on x86-64 can a function have a zygote of its own; it is started as \
                      prepared instead.";
        without.insert("function_zygote", reason.to_owned());
    }
    if let Err(reason) = checkpoints {
        let sentence = format!(
            "There are no checkpoints: {reason}. Functions are started as prepared instead."
        );
        without.insert("checkpoint", sentence);
    }
    without
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_lacks_is_off() {
        let capabilities = Capabilities::new(None);
        for seccomp in [true, false] {
            let features = Features::of(&Capabilities { seccomp, ..capabilities.clone() }, Ok(()));
            assert_eq!(features.system_call_filter, seccomp);
            assert!(features.byte_code.contains(&"python"));
            assert!(features.start_from.starts_with(&["fresh", "prepared"]), "{features:?}");
        }
        for root in [true, false] {
            let features = Features::of(&Capabilities { root, ..capabilities.clone() }, Ok(()));
            assert_eq!(features.start_from.contains(&"zygote"), root);
            assert_eq!(features.not_started_from.contains_key("zygote"), !root);
            assert!(features.warm_checkpoints);
        }
        let features = Features::of(&capabilities, Err("there is no CRIU".into()));
        assert!(features.not_started_from["checkpoint"].contains("there is no CRIU"));
        assert!(!features.warm_checkpoints && !features.start_from.contains(&"checkpoint"));
    }
}
