//! What makes the platform fast, or holds functions back, and is on here.

use serde::Serialize;

use crate::instance::{Capabilities, Runtime};
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
    /// Whether the system calls of functions are filtered.
    pub system_call_filter: bool,
}

impl Features {
    /// What is on with these capabilities.
    pub fn of(capabilities: &Capabilities) -> Self {
        let compiled = Runtime::all().iter().filter(|it| it.definition().byte_code().is_some());
        Self {
            journal_format: meterlog::JOURNAL_FORMAT,
            byte_code: compiled.map(|it| it.name()).collect(),
            start_from: settings::start_choices(),
            system_call_filter: capabilities.seccomp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_lacks_is_off() {
        let capabilities = Capabilities::new(None);
        for seccomp in [true, false] {
            let features = Features::of(&Capabilities { seccomp, ..capabilities.clone() });
            assert_eq!(features.system_call_filter, seccomp);
            assert!(features.byte_code.contains(&"python"));
            assert!(features.start_from.starts_with(&["fresh", "prepared"]), "{features:?}");
        }
    }
}
