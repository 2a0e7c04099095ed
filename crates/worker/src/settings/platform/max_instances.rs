//! Room on the platform.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "max_instances",
    description: "Instances, and requests in flight, on the whole platform; more are turned away with HTTP 429.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 1..=u64::MAX,
        set: |to, count| to.config(|it| it.max_instances = to_u32(count)),
    },
    default: Default::Value(Value::Number(100)),
    scope: Scope::Platform,
};
