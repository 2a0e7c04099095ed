//! Who goes first while CPUs are short.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "precedence",
    description: "Whether the platform's thread goes before others while it takes little, and functions that use all the \
                  CPU they may let those go first that do not. Not with cpu_sharing, nor for functions with cpu_shares.",
    kind: Kind::Flag(|to, precedence| to.config(|it| it.precedence = precedence)),
    default: Default::Value(Value::Flag(true)),
    scope: Scope::Platform,
};
