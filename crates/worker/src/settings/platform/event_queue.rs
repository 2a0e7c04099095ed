//! How many events may wait.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "event_queue",
    description: "Asynchronous invocations that may wait; more are turned away with HTTP 429.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 1..=u64::MAX,
        set: |to, count| {
            to.config(|it| it.event_queue = usize::try_from(count).unwrap_or(usize::MAX));
        },
    },
    default: Default::Value(Value::Number(10_000)),
    scope: Scope::Platform,
};
