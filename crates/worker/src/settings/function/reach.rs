//! Which services an instance reaches.

use crate::services::Reach;
use crate::settings::{Default, Kind, Scope, Setting, Target, Value};

fn set(to: &mut Target<'_>, reach: Reach) {
    to.reach(reach);
}

pub(crate) static SETTING: Setting = Setting {
    name: "reach",
    description: "Services beside functions that an instance reaches, through endpoints of its own, whatever its \
                  network is but the host's.",
    kind: Kind::Services(set),
    default: Default::Value(Value::Services(Reach::NONE)),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
