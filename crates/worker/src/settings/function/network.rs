//! What an instance reaches.

use crate::instance::Network;
use crate::settings::{Default, Kind, Scope, Setting, Value};

pub(crate) static SETTING: Setting = Setting {
    name: "network",
    description: "What an instance reaches: none; platform, to invoke functions at \
                  AWS_ENDPOINT_URL_LAMBDA and nothing else; or host.",
    kind: Kind::Choice(&[
        ("none", |to| to.instance(|it| it.network = Network::None)),
        ("platform", |to| to.instance(|it| it.network = Network::Platform)),
        ("host", |to| to.instance(|it| it.network = Network::Host)),
    ]),
    default: Default::Value(Value::Word("none")),
    scope: Scope::Function { platform_key: Some("default_network"), replaces_instances: true },
};
