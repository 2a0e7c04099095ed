//! How long an idle instance is kept at least.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, nanoseconds};

pub(crate) static SETTING: Setting = Setting {
    name: "keep_alive_min",
    description: "An idle instance lives at least this long, and at most as keep_alive says, under the retention \
                  policies uniform and opportunistic.",
    kind: Kind::Number {
        unit: Unit::Milliseconds,
        range: 0..=u64::MAX,
        set: |to, ms| to.config(|it| it.parameters.keep_alive_min = nanoseconds(ms)),
    },
    default: Default::Value(Value::Number(0)),
    scope: Scope::Platform,
};
