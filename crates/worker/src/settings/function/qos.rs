//! What a function's callers wait for.

use uncia_policy::Qos;

use crate::settings::{Default, Kind, Scope, Setting, Target, Value};

fn set(to: &mut Target<'_>, qos: Qos, name: &str) {
    to.policy(|it| it.qos = qos);
    to.row(|it| it.qos = Some(name.into()));
}

pub(crate) static SETTING: Setting = Setting {
    name: "qos",
    description: "What callers wait for: interactive, an answer; or batch, work to be done.",
    kind: Kind::Choice(&[
        ("interactive", |to| set(to, Qos::Interactive, "interactive")),
        ("batch", |to| set(to, Qos::Batch, "batch")),
    ]),
    default: Default::Value(Value::Word("interactive")),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
