//! The period of the CPU quota.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "period",
    description: "Period of the CPU quota; the default is as measured on Lambda.",
    kind: Kind::Number {
        unit: Unit::Microseconds,
        // What the kernel's CPU bandwidth control takes.
        range: 1_000..=1_000_000,
        set: |to, us| to.instance(|it| it.period_us = us),
    },
    default: Default::Value(Value::Number(20_000)),
    scope: Scope::Function { platform_key: Some("period_us"), replaces_instances: true },
};
