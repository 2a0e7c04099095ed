//! How much the platform's log keeps.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "log_rows",
    description: "Rows of each table that the platform's own log keeps; older ones are removed.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 1..=u64::MAX,
        set: |to, count| to.config(|it| it.log_rows = count),
    },
    default: Default::Value(Value::Number(10_000_000)),
    scope: Scope::Platform,
};
