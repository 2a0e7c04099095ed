//! How many processes an instance may have.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "pids_max",
    description: "Processes and threads in an instance.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 2..=u64::MAX,
        set: |to, count| to.config(|it| it.pids_max = count),
    },
    default: Default::Value(Value::Number(256)),
    scope: Scope::Platform,
};
