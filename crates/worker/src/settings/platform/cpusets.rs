//! Whether functions may name the CPUs that they run on.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "cpusets",
    description: "Whether functions may name the CPUs that they run on (cpus). On version 1 of control groups each start \
                  then makes one more.",
    kind: Kind::Flag(|to, cpusets| to.config(|it| it.cpusets = cpusets)),
    default: Default::Value(Value::Flag(false)),
    scope: Scope::Platform,
};
