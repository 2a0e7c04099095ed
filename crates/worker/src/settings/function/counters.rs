//! Whether what the kernel counts of an invocation is in its row.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "counters",
    description: "Whether rows say how long each invocation waited for a CPU, and its page faults, context switches \
                  and, where the CPU shows them, cycles, instructions and misses. It takes some microseconds an \
                  invocation, and makes each switch between threads on the machine a little dearer.",
    kind: Kind::Flag(|to, counts| to.instance(|it| it.counters = counts)),
    default: Default::Value(Value::Flag(false)),
    scope: Scope::Function { platform_key: Some("counters"), replaces_instances: true },
};
