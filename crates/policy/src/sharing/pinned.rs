//! Everybody runs on the cores that are reserved for them, and on no others.
//!
//! `own = min(demand, cap, reserved)`
//!
//! As with `cpuset.cpus`. Leopard, section 4.2, Figure 6 (a): what is reserved and idle is wasted.

use super::{Claim, Grant, Sharing};

/// Shares nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pinned;

/// Makes the rule.
pub fn policy() -> Box<dyn Sharing> {
    Box::new(Pinned)
}

impl Sharing for Pinned {
    fn share(&mut self, capacity: u64, claims: &[Claim], grants: &mut Vec<Grant>) {
        let mut left = capacity;
        grants.clear();
        grants.extend(claims.iter().map(|claim| {
            let own = claim.wanted_reserved().min(left);
            left -= own;
            Grant { own, ..Grant::default() }
        }));
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}
