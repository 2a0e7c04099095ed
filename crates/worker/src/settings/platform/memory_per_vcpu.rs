//! The CPU that comes with memory.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value};

const MIB: u64 = 1 << 20;

pub(crate) static SETTING: Setting = Setting {
    name: "memory_per_vcpu",
    description: "Memory with which a function that sets no CPU gets one vCPU.",
    kind: Kind::Number {
        unit: Unit::Bytes,
        range: MIB..=u64::MAX,
        set: |to, bytes| to.config(|it| it.memory_per_vcpu_bytes = bytes),
    },
    // Lambda's.
    default: Default::Value(Value::Number(1_769 * MIB)),
    scope: Scope::Platform,
};
