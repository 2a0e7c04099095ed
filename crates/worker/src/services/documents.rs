//! JSON documents over Redis' protocol.

use crate::services::Service;

pub(super) static SERVICE: Service =
    Service { name: "documents", variable: ("REDIS_URL", |address| format!("redis://{address}")) };
