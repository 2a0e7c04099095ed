//! Requests that one instance serves at a time.

use crate::settings::{Default, Kind, Scope, Setting, Unit, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "concurrency",
    description: "Requests that one instance serves at a time, at most; more than 1 needs the \
                  architecture http or code.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 1..=1_000,
        set: |to, count| to.concurrency(to_u32(count)),
    },
    default: Default::Derived("1; 80 with the architecture http, 1000 with code"),
    scope: Scope::Function { platform_key: Some("concurrency"), replaces_instances: true },
};
