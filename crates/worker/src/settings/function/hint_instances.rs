//! Instances that are kept or started on the account of hints.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "hint_instances",
    description: "So many instances at most are there on the account of hints at once, under the retention policy hints: \
                  started for one, or kept for one beyond keep_alive. Their idle time is charged at the tariff's idle \
                  price, whether what was said comes or not.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 0..=u64::MAX,
        set: |to, count| to.policy(|it| it.hint_instances = to_u32(count)),
    },
    default: Default::Value(Value::Number(0)),
    scope: Scope::Function { platform_key: None, replaces_instances: false },
};
