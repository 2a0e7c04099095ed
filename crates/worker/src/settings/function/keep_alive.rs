//! How long an idle instance is kept.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, nanoseconds};

pub(crate) static SETTING: Setting = Setting {
    name: "keep_alive",
    description: "An idle instance lives this long.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.policy(|it| it.keep_alive = nanoseconds(ms)),
    },
    default: Default::Value(Value::Number(300_000)),
    scope: Scope::Function { platform_key: Some("keep_alive_ms"), replaces_instances: false },
};
