//! Who removes instances that are not needed.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "scale_down",
    description: "Whether the scaling policy concurrency-target stops idle instances beyond its target; \
                  otherwise they are kept as the retention policy says.",
    kind: Kind::Flag(|to, scale_down| to.config(|it| it.parameters.scale_down = scale_down)),
    default: Default::Value(Value::Flag(true)),
    scope: Scope::Platform,
};
