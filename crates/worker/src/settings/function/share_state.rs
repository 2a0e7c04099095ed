//! What instances of a function share besides its code.

use crate::instance::ShareState;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "share_state",
    description: "What the function's later instances start with that an earlier one has made while it served: none; \
                  classes, an archive of the classes that it has loaded (Java 17 or newer); profile, the same and \
                  how often its methods ran (Java 25 or newer); code, what the compiler has made of the sources \
                  that it has loaded (Node.js); or warm, a checkpoint of it, with all that its invocations have left in \
                  memory (Java, Ruby and own programs; CRIU).",
    kind: Kind::Choice(&[
        ("none", |to| to.share_state(ShareState::None)),
        ("classes", |to| to.share_state(ShareState::Classes)),
        ("profile", |to| to.share_state(ShareState::Profile)),
        ("code", |to| to.share_state(ShareState::Code)),
        ("warm", |to| to.share_state(ShareState::Warm)),
    ]),
    default: Default::Value(Value::Word("none")),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
