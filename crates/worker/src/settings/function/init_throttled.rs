//! Whether initialization has no more CPU than execution.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "init_throttled",
    description: "Whether the CPU quota holds during initialization too; on Lambda it does not.",
    kind: Kind::Flag(|to, throttled| to.instance(|it| it.init_throttled = throttled)),
    default: Default::Value(Value::Flag(false)),
    scope: Scope::Function { platform_key: Some("init_throttled"), replaces_instances: true },
};
