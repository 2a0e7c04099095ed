//! Who holds an instance to its CPU quota.

use crate::instance::Enforcement;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "enforcement",
    description: "Who enforces the CPU quota: kernel, at its ticks; or event-driven, by timers.",
    kind: Kind::Choice(&[
        ("kernel", |to| to.instance(|it| it.enforcement = Enforcement::Kernel)),
        ("event-driven", |to| to.instance(|it| it.enforcement = Enforcement::EventDriven)),
    ]),
    default: Default::Value(Value::Word("kernel")),
    scope: Scope::Function { platform_key: Some("enforcement"), replaces_instances: true },
};
