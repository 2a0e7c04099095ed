//! How long an initialization may take.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "init_timeout",
    description: "An initialization that takes longer has failed.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 1..=u64::MAX,
        set: |to, ms| to.config(|it| it.init_timeout_ms = ms),
    },
    default: Default::Value(Value::Number(10_000)),
    scope: Scope::Platform,
};
