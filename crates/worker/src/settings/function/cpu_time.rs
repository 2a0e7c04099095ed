//! The CPU time that a request may use.

use std::time::Duration;

use crate::settings::{Default, Kind, Scope, Setting, Unit};

pub(crate) static SETTING: Setting = Setting {
    name: "cpu_time",
    description: "A request may use so much CPU time, and is stopped then; with the architecture code.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 1..=900_000,
        set: |to, ms| to.cpu_time(Duration::from_millis(ms)),
    },
    default: Default::Derived("as much as the timeout allows"),
    scope: Scope::Function { platform_key: Some("cpu_time_ms"), replaces_instances: true },
};
