//! The wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in Unix ns.
pub fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
