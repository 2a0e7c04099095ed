//! Instances that are kept ready.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "min_instances",
    description: "Instances that are started and kept ready whether requests come or not.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 0..=u64::MAX,
        set: |to, count| to.policy(|it| it.min_instances = to_u32(count)),
    },
    default: Default::Value(Value::Number(0)),
    scope: Scope::Function { platform_key: None, replaces_instances: false },
};
