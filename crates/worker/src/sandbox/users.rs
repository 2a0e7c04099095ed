//! The users that instances run as.

use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Numbers that no account has, each instance another, so that what the kernel counts for each user
/// (pending signals, pipe buffers, keys, watches) is nobody else's.
const OWN: Range<u32> = 1_900_000_000..1_900_065_536;

/// The user of all functions where a container allows no such numbers: Lambda's.
const SHARED: u32 = 993;

/// Hands out users.
#[derive(Debug)]
pub(super) struct Users {
    /// Whether each instance has another user.
    unique: bool,
    next: AtomicU32,
}

impl Users {
    /// `root`: whether this process may become any user.
    pub(super) fn new(root: bool) -> Self {
        Self { unique: root && all_exist(), next: AtomicU32::new(std::process::id()) }
    }

    /// The user of a new instance.
    pub(super) fn next(&self) -> u32 {
        if !self.unique {
            return SHARED;
        }
        OWN.start + self.next.fetch_add(1, Ordering::Relaxed) % (OWN.end - OWN.start)
    }

    /// Whether instances run as this user.
    pub(super) fn is_instance(&self, user: u32) -> bool {
        if self.unique { OWN.contains(&user) } else { user == SHARED }
    }
}

/// Whether every user number is one here, as outside of containers with user namespaces.
fn all_exist() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_instance_is_another_user_where_that_is_possible() {
        let users = Users { unique: true, next: AtomicU32::new(u32::MAX) };
        let three = [users.next(), users.next(), users.next()];
        assert!(three.iter().all(|user| users.is_instance(*user)));
        assert_ne!(three[0], three[1]);
        assert!(!users.is_instance(0) && !users.is_instance(SHARED) && !users.is_instance(OWN.end));
        let users = Users::new(false);
        assert!(users.is_instance(users.next()) && !users.is_instance(OWN.start));
    }
}
