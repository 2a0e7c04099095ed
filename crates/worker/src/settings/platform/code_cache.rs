//! How much of what is fetched is kept.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "code_cache",
    description: "How much of the packages that are fetched at a start stays unpacked for the next ones, the most \
                  recently used first; 0: only what instances run on.",
    kind: Kind::Number {
        unit: Unit::Bytes,
        range: 0..=1 << 40,
        set: |to, bytes| to.config(|it| it.code_cache_bytes = bytes),
    },
    default: Default::Value(Value::Number(10 << 30)),
    scope: Scope::Platform,
};
