//! How long CPUs stay awake for the next request.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "stay_awake",
    description: "The machine's CPUs do not sleep for this long after each answer, so that the next request need not \
                  wake them; each idle one then takes a busy core's power. 0: they may sleep at once.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.config(|it| it.stay_awake_ms = ms),
    },
    default: Default::Value(Value::Number(0)),
    scope: Scope::Platform,
};
