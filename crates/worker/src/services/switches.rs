//! Devices with a switch each, such as lights, over HTTP.

use crate::services::Service;

pub(super) static SERVICE: Service = Service {
    name: "switches",
    variable: ("UNCIA_SWITCHES_URL", |address| format!("http://{address}")),
};
