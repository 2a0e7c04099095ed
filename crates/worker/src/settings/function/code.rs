//! Where a function's zip file is kept between instances.

use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "code",
    description: "Where a function's zip file is kept: kept, unpacked on the platform's machine; or fetched, \
                  in the store of objects, from where it is fetched, checked and unpacked when an instance \
                  starts, unless the cache has it (code_cache). An image in a registry is always fetched.",
    kind: Kind::Choice(&[("kept", |to| to.fetched(false)), ("fetched", |to| to.fetched(true))]),
    default: Default::Value(Value::Word("kept")),
    scope: Scope::Function { platform_key: None, replaces_instances: false },
};
