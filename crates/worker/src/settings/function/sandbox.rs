//! What an instance's processes are in.

use crate::instance::Sandbox;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "sandbox",
    description: "What an instance's processes are in: process, namespaces that the platform makes itself; or a \
                  container that an OCI runtime makes, by its program (crun, runc, or runsc of gVisor).",
    // The OCI runtimes are those that have a file.
    kind: Kind::Choice(include!(concat!(env!("OUT_DIR"), "/sandbox_choices.rs"))),
    default: Default::Value(Value::Word("process")),
    scope: Scope::Function { platform_key: Some("sandbox"), replaces_instances: true },
};
