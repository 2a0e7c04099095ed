//! Whether an instance may have to give up its memory while it serves.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "preemptible",
    description: "Whether an instance may be stopped while it serves, if the policies want its \
                  memory; its request is then tried again.",
    kind: Kind::Flag(|to, preemptible| {
        to.policy(|it| it.preemptible = preemptible);
        to.instance(|it| it.preemptible = preemptible);
        to.row(|it| it.preemptible = Some(preemptible));
    }),
    default: Default::Value(Value::Flag(false)),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
