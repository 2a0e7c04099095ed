//! The CPU that the platform has to allocate.

use crate::settings::{Default, Kind, Scope, Setting, Unit};

pub(crate) static SETTING: Setting = Setting {
    name: "capacity_cpu",
    description: "CPU that the platform has for instances. What does not fit waits, and a function that \
                  needs more is refused.",
    kind: Kind::Number {
        unit: Unit::MicroVcpu,
        range: 1..=u64::MAX,
        set: |to, micro| to.config(|it| it.capacity.cpu = micro),
    },
    default: Default::Derived("not counted"),
    scope: Scope::Platform,
};
