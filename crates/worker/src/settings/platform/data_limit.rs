//! How large the data between states may be.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "data_limit",
    description: "The most bytes of data, as JSON, that a state of a state machine may get or give.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 1..=16_777_216,
        set: |to, bytes| {
            to.config(|it| it.data_limit = usize::try_from(bytes).unwrap_or(usize::MAX));
        },
    },
    default: Default::Value(Value::Number(262_144)),
    scope: Scope::Platform,
};
