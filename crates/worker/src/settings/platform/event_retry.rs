//! When an event is tried again.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "event_retry",
    description: "Wait before a failed asynchronous invocation is tried again; twice that before the third attempt.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.config(|it| it.event_retry_ms = ms),
    },
    default: Default::Value(Value::Number(60_000)),
    scope: Scope::Platform,
};
