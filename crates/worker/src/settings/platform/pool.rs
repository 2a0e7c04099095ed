//! How many started runtimes wait for instances.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "pool",
    description: "Started runtimes that wait for functions with start_from pool: so many for each runtime \
                  and memory size, as far as there is memory for them.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 0..=1000,
        set: |to, count| to.config(|it| it.pool = to_u32(count)),
    },
    default: Default::Value(Value::Number(4)),
    scope: Scope::Platform,
};
