//! How often the instances that are wanted are counted.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, nanoseconds};

pub(crate) static SETTING: Setting = Setting {
    name: "scaling_tick",
    description: "The scaling policy concurrency-target decides this often how many instances are wanted.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 1..=u64::MAX,
        set: |to, ms| to.config(|it| it.parameters.scaling_tick = nanoseconds(ms)),
    },
    default: Default::Value(Value::Number(2_000)),
    scope: Scope::Platform,
};
