//! Randomness of the policies.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "seed",
    description: "Seed of the policies' random choices.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 0..=u64::MAX,
        set: |to, seed| to.config(|it| it.seed = seed),
    },
    default: Default::Value(Value::Number(0)),
    scope: Scope::Platform,
};
