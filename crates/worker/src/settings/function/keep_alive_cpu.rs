//! What an instance may do while it is kept alive.

use uncia_policy::Pause;

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "keep_alive_cpu",
    description: "How an idle instance is paused: freeze, as on Lambda; scale-down, to 0.01 vCPU; \
                  or run, not at all.",
    kind: Kind::Choice(&[
        ("freeze", |to| to.policy(|it| it.pause = Some(Pause::Freeze))),
        ("scale-down", |to| to.policy(|it| it.pause = Some(Pause::ScaleDown))),
        ("run", |to| to.policy(|it| it.pause = None)),
    ]),
    default: Default::Value(Value::Word("freeze")),
    scope: Scope::Function { platform_key: Some("keep_alive_cpu"), replaces_instances: false },
};
