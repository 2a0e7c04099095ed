//! Whose the CPUs are while several want them.

use crate::settings::{Default, Kind, Scope, Setting, Target, Value};

fn set(to: &mut Target<'_>, policy: &str) {
    to.config(|it| it.policies.cpu = policy.into());
}

pub(crate) static SETTING: Setting = Setting {
    name: "cpu_sharing",
    description: "Whose the CPUs are while several want them: unmanaged, the kernel decides; pinned, instances run on \
                  the cores that they reserve alone; weights, on all in proportion to what they reserve; idle, so, and \
                  what reserves none runs where nobody else wants to.",
    kind: Kind::Choice(&[
        ("pinned", |to| set(to, "pinned")),
        ("weights", |to| set(to, "weights")),
        ("idle", |to| set(to, "by-reservation")),
        ("unmanaged", |to| set(to, "unmanaged")),
    ]),
    default: Default::Value(Value::Word("unmanaged")),
    scope: Scope::Platform,
};
