//! How the platform is stopped.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "shutdown_grace",
    description: "Requests in flight may take this long to end when the platform is stopped; a second \
                  signal ends them at once.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.config(|it| it.shutdown_grace_ms = ms),
    },
    default: Default::Value(Value::Number(5_000)),
    scope: Scope::Platform,
};
