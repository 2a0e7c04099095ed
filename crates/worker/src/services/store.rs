//! Objects by S3's API.

use crate::services::Service;

pub(super) static SERVICE: Service = Service {
    name: "store",
    variable: ("AWS_ENDPOINT_URL_S3", |address| format!("http://{address}")),
};
