//! How an instance gets its requests.

use crate::instance::Architecture;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "architecture",
    description: "How an instance gets its requests: polling, its runtime asks for them at the Lambda \
                  Runtime API; or http, it serves HTTP at the port that its variable PORT names, as on \
                  Cloud Run (Python, Node.js, Ruby, Java, provided); or code, one process runs it for \
                  all functions, anew for each request (WebAssembly, which knows nothing else). Where \
                  http is the platform's own default, functions poll all the same whose handlers do \
                  not name a server's file.",
    kind: Kind::Choice(&[
        ("polling", |to| to.architecture(Architecture::Polling)),
        ("http", |to| to.architecture(Architecture::Http)),
        ("code", |to| to.architecture(Architecture::Code)),
    ]),
    default: Default::Value(Value::Word("polling")),
    scope: Scope::Function { platform_key: Some("architecture"), replaces_instances: true },
};
