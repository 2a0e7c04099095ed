//! How much of the CPU a function gets beside others.

use crate::settings::{Default, Kind, Scope, Setting, Unit};

pub(crate) static SETTING: Setting = Setting {
    name: "cpu_shares",
    description: "What all instances of the function together get of CPUs that others want too, in proportion to \
                  the others' shares, as cpu.shares of control groups; on version 2 a 1024th of them times 100 as \
                  cpu.weight, 1 at least. Not with cpu_sharing.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 2..=262_144,
        set: |to, shares| to.instance(|it| it.cpu_shares = Some(shares)),
    },
    default: Default::Derived("the greatest there is"),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
