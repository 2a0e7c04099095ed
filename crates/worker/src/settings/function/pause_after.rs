//! When an idle instance is paused.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, nanoseconds};

pub(crate) static SETTING: Setting = Setting {
    name: "pause_after",
    description: "An idle instance is paused after this time.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.policy(|it| it.pause_after = nanoseconds(ms)),
    },
    default: Default::Value(Value::Number(50)),
    scope: Scope::Function { platform_key: Some("pause_after_ms"), replaces_instances: false },
};
