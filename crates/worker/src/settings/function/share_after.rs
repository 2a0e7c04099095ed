//! When what instances share is made.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "share_after",
    description: "What share_state means is made of the first instance that has served so many invocations.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 1..=1_000_000,
        set: |to, count| to.instance(|it| it.share_after = to_u32(count)),
    },
    default: Default::Value(Value::Number(20)),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
