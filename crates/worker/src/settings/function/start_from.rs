//! What an instance is started from.

use crate::instance::StartFrom;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "start_from",
    description: "What an instance is started from: fresh, nothing; prepared, a process in \
                  namespaces of its own that was made ahead; zygote, the same and a copy of a \
                  runtime that has started (Python); function_zygote, a copy of a runtime that \
                  has run the function's imports (Python); pool, a runtime that was started \
                  ahead (Python, Node.js, Ruby); or checkpoint, the image of a runtime that has loaded the function \
                  (Java, Ruby and own programs; CRIU).",
    kind: Kind::Choice(&[
        ("fresh", |to| to.start_from(StartFrom::Fresh)),
        ("prepared", |to| to.start_from(StartFrom::Prepared)),
        ("zygote", |to| to.start_from(StartFrom::Zygote)),
        ("function_zygote", |to| to.start_from(StartFrom::FunctionZygote)),
        ("pool", |to| to.start_from(StartFrom::Pool)),
        ("checkpoint", |to| to.start_from(StartFrom::Checkpoint)),
    ]),
    default: Default::Value(Value::Word("prepared")),
    scope: Scope::Function { platform_key: Some("start_from"), replaces_instances: true },
};
