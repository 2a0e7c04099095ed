//! How long the last instance stays.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, nanoseconds};

pub(crate) static SETTING: Setting = Setting {
    name: "scale_to_zero_delay",
    description: "The scaling policy concurrency-target keeps a function's last instance this long once none is \
                  wanted.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.config(|it| it.parameters.scale_to_zero_delay = nanoseconds(ms)),
    },
    default: Default::Value(Value::Number(30_000)),
    scope: Scope::Platform,
};
