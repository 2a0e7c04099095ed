//! When the platform's own log is written.

use crate::meterlog::Keeping;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "log",
    description: "When the platform's own log is written: durable, each row before its answer goes out; or memory, once \
                  somebody reads it, or 8000 rows wait, so that the rows of a platform that is killed are lost, and \
                  asynchronous events whose ends are among them run again: it is there to measure what the log itself takes.",
    kind: Kind::Choice(&[
        ("durable", |to| to.config(|it| it.log = Keeping::Durable)),
        ("memory", |to| to.config(|it| it.log = Keeping::Memory)),
    ]),
    default: Default::Value(Value::Word("durable")),
    scope: Scope::Platform,
};
