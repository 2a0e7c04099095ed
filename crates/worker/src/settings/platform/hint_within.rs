//! How exact hints are that do not say so.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, nanoseconds};

pub(crate) static SETTING: Setting = Setting {
    name: "hint_within",
    description: "What a hint says may come this much earlier or later than it says, unless it says within=, under the retention \
                  policy hints.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.config(|it| it.parameters.hint_within = nanoseconds(ms)),
    },
    default: Default::Value(Value::Number(1_000)),
    scope: Scope::Platform,
};
