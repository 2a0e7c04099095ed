//! The part of the allocated CPU that is not reserved.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "spot_cpu",
    description: "The part of the allocated CPU that is spot: used when others leave it idle. The \
                  rest is reserved.",
    kind: Kind::Number {
        unit: Unit::MicroVcpu,
        range: 0..=u64::MAX,
        set: |to, micro| {
            to.policy(|it| it.spot_cpu = micro);
            to.row(|it| {
                let micro = i64::try_from(micro).unwrap_or(i64::MAX);
                it.spot_cpu = it.allocated_cpu.map(|all| micro.min(all));
                it.reserved_cpu = it.allocated_cpu.map(|all| (all - micro).max(0));
            });
        },
    },
    default: Default::Value(Value::Number(0)),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
