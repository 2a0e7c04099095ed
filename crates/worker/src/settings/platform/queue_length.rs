//! How long the queue before an instance may be.

use crate::settings::{Default, Kind, Scope, Setting, Unit, Value, to_u32};

pub(crate) static SETTING: Setting = Setting {
    name: "queue_length",
    description: "Requests that may wait for each instance before another is started, under the scaling policy \
                  queue-per-instance.",
    kind: Kind::Number {
        unit: Unit::None,
        range: 0..=u64::MAX,
        set: |to, count| to.config(|it| it.parameters.queue_length = to_u32(count)),
    },
    default: Default::Value(Value::Number(1)),
    scope: Scope::Platform,
};
