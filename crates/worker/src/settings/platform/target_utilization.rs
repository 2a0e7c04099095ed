//! How much of its concurrency an instance is to serve.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "target_utilization",
    description: "Percent of its concurrency that an instance is to serve on average, under the scaling policy \
                  concurrency-target.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 1..=100,
        set: |to, percent| to.config(|it| it.parameters.target_utilization = to_u32(percent)),
    },
    default: Default::Value(Value::Number(70)),
    scope: Scope::Platform,
};
