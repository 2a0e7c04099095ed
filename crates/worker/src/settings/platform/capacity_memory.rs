//! The memory that the platform has to allocate.

use crate::settings::{Default, Kind, Scope, Setting, Unit};

pub(crate) static SETTING: Setting = Setting {
    name: "capacity_memory",
    description: "Memory that the platform has for instances. What does not fit waits, and a function that \
                  needs more is refused.",
    kind: Kind::Number {
        unit: Unit::Bytes,
        range: 1..=u64::MAX,
        set: |to, bytes| to.config(|it| it.capacity.memory = bytes),
    },
    default: Default::Derived("not counted"),
    scope: Scope::Platform,
};
