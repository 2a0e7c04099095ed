//! What an instance is started from.

use crate::instance::StartFrom;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "start_from",
    description: "What an instance is started from: fresh, nothing; prepared, a process in \
                  namespaces of its own that was made ahead; or pool, a runtime that was started \
                  ahead, and waits.",
    kind: Kind::Choice(&[
        ("fresh", |to| to.instance(|it| it.start_from = StartFrom::Fresh)),
        ("prepared", |to| to.instance(|it| it.start_from = StartFrom::Prepared)),
        ("pool", |to| to.instance(|it| it.start_from = StartFrom::Pool)),
    ]),
    default: Default::Value(Value::Word("fresh")),
    scope: Scope::Function { platform_key: Some("start_from"), replaces_instances: true },
};
