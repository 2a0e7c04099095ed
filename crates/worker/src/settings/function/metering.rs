//! Whether it is measured what an invocation uses.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "metering",
    description: "Whether it is measured what each invocation uses. Without, its CPU time, throttling and memory are null, \
                  and what is billed by them has no price: it is there to measure what metering itself takes.",
    kind: Kind::Flag(|to, meters| to.instance(|it| it.metering = meters)),
    default: Default::Value(Value::Flag(true)),
    scope: Scope::Function { platform_key: Some("metering"), replaces_instances: true },
};
