//! Whether frozen instances keep what the kernel can have back.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "reclaim_memory",
    description: "Whether the memory of a frozen instance is given back as far as it can be had again: \
                  pages of files, and with swap all. The next request waits for what it needs.",
    kind: Kind::Flag(|to, reclaim| to.instance(|it| it.reclaim_memory = reclaim)),
    default: Default::Value(Value::Flag(false)),
    scope: Scope::Function { platform_key: Some("reclaim_memory"), replaces_instances: true },
};
