//! How far ahead hints may be.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, nanoseconds};

pub(crate) static SETTING: Setting = Setting {
    name: "hint_ahead",
    description: "A hint for a time further ahead than this is refused, under the retention policy hints.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.config(|it| it.parameters.hint_ahead = nanoseconds(ms)),
    },
    default: Default::Value(Value::Number(86_400_000)),
    scope: Scope::Platform,
};
