//! How much of what instances start with is kept.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "checkpoint_cache",
    description: "How much disk the checkpoints of functions may take, and as much what share_state keeps. What was \
                  used longest ago makes room, unless an instance uses it, and is made anew when its function next \
                  wants it; what still does not fit is refused with a warning.",
    kind: Kind::Number {
        unit: Unit::Bytes,
        range: 1 << 20..=1 << 40,
        set: |to, bytes| to.config(|it| it.checkpoint_cache_bytes = bytes),
    },
    default: Default::Value(Value::Number(10 << 30)),
    scope: Scope::Platform,
};
