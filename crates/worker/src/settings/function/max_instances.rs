//! The most requests of a function that are in flight.

use crate::settings::{Default, Kind, Scope, Setting, Unit, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "max_instances",
    description: "The most requests of the function in flight, each on an instance of its own; more \
                  are turned away with HTTP 429. 0 turns all away, as Lambda's reserved concurrency \
                  of 0 does.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 0..=u64::MAX,
        set: |to, limit| to.policy(|it| it.max_in_flight = it.max_in_flight.min(to_u32(limit))),
    },
    default: Default::Derived("the platform's max_instances"),
    scope: Scope::Function { platform_key: None, replaces_instances: false },
};
