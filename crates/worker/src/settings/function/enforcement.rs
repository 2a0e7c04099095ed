//! Who holds an instance to its CPU quota.

use crate::instance::Enforcement;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "enforcement",
    description: "Who enforces the CPU quota: kernel, at its ticks; event-driven, by timers; or none, nobody: \
                  an instance has what is left of the machine.",
    kind: Kind::Choice(&[
        ("kernel", |to| to.instance(|it| it.enforcement = Enforcement::Kernel)),
        ("event-driven", |to| to.instance(|it| it.enforcement = Enforcement::EventDriven)),
        ("none", |to| to.instance(|it| it.enforcement = Enforcement::None)),
    ]),
    default: Default::Value(Value::Word("kernel")),
    scope: Scope::Function { platform_key: Some("enforcement"), replaces_instances: true },
};
