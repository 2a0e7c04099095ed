//! When a request is tied to the instance that serves it.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "binding",
    description: "Whether a request for which an instance is being started waits for that one \
                  (early), or may go to another that is free before (late).",
    kind: Kind::Choice(&[
        ("early", |to| to.config(|it| it.policies.binding = "early".into())),
        ("late", |to| to.config(|it| it.policies.binding = "late".into())),
    ]),
    default: Default::Value(Value::Word("early")),
    scope: Scope::Platform,
};
