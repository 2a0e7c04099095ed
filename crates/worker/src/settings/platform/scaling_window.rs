//! Over which time the concurrency is averaged.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, nanoseconds};

pub(crate) static SETTING: Setting = Setting {
    name: "scaling_window",
    description: "The scaling policy concurrency-target averages the requests in flight over this time, and over a \
                  tenth of it to notice a surge.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 1..=u64::MAX,
        set: |to, ms| to.config(|it| it.parameters.scaling_window = nanoseconds(ms)),
    },
    default: Default::Value(Value::Number(60_000)),
    scope: Scope::Platform,
};
