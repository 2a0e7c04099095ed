//! How an instance is stopped.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "stop_grace",
    description: "From SIGTERM to SIGKILL when an instance is stopped.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.config(|it| it.stop_grace_ms = ms),
    },
    default: Default::Value(Value::Number(300)),
    scope: Scope::Platform,
};
