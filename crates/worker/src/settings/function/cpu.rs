//! The CPU that is allocated to an instance.

use crate::settings::{Default, Kind, Scope, Setting, Unit};

pub(crate) static SETTING: Setting = Setting {
    name: "cpu",
    description: "CPU allocated to an instance.",
    kind: Kind::Number {
        unit: Unit::MicroVcpu,
        range: 1..=u64::MAX,
        set: |to, micro| to.policy(|it| it.allocation.cpu = micro),
    },
    default: Default::Derived("memory / memory_per_vcpu"),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
