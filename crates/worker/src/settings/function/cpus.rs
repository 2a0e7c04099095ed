//! The CPUs that an instance runs on.

use crate::settings::{Default, Kind, Scope, Setting};

pub(crate) static SETTING: Setting = Setting {
    name: "cpus",
    description: "The CPUs that an instance runs on, and no others. The platform must be started with cpusets.",
    kind: Kind::Cpus(|to, cpus| to.instance(|it| it.cpus = Some(cpus))),
    default: Default::Derived("all"),
    scope: Scope::Function { platform_key: None, replaces_instances: true },
};
