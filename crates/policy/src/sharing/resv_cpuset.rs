//! Who reserves a core has the right of first refusal; what is left is for spot work.
//!
//! `own = min(demand, cap, reserved)`, at once whatever others do. What no one uses of their own is
//! divided equally among those who want more, none getting more than `min(demand, cap)`. They run on
//! cores that are reserved for no one first; what they use beyond those is lent by those whose
//! reservations idle, each in proportion to what idles:
//!
//! `sum of borrowed = sum of lent + use of unreserved cores`
//!
//! Leopard's `cpu.resv_cpuset`, section 4.3.1. There, spot threads run on whichever core is idle, so that
//! who lends is a matter of chance; and a thread is never divided.

use super::{Claim, Grant, Sharing, divide};

/// Shares with the right of first refusal.
#[derive(Debug, Clone, Default)]
pub struct ResvCpuset {
    parties: Vec<(u64, u64, usize)>,
}

/// Makes the rule.
pub fn policy() -> Box<dyn Sharing> {
    Box::new(ResvCpuset::default())
}

impl Sharing for ResvCpuset {
    fn share(&mut self, capacity: u64, claims: &[Claim], grants: &mut Vec<Grant>) {
        grants.clear();
        let (mut left, mut unreserved) = (capacity, capacity);
        for claim in claims {
            let own = claim.wanted_reserved().min(left);
            left -= own;
            unreserved = unreserved.saturating_sub(claim.reserved);
            grants.push(Grant { own, ..Grant::default() });
        }
        let parties = &mut self.parties;
        parties.clear();
        for (index, claim) in claims.iter().enumerate() {
            let more = claim.wanted() - grants[index].own;
            if more > 0 {
                parties.push((more, 1, index));
            }
        }
        if parties.is_empty() || left == 0 {
            return;
        }
        let mut borrowed = 0;
        divide(left, parties, |index, share| {
            grants[index].borrowed = share;
            borrowed += share;
        });
        let lent = borrowed.saturating_sub(unreserved);
        if lent == 0 {
            return;
        }
        parties.clear();
        for (index, claim) in claims.iter().enumerate() {
            let idle = claim.reserved - grants[index].own;
            if idle > 0 {
                parties.push((idle, idle, index));
            }
        }
        divide(lent, parties, |index, share| grants[index].lent = share);
    }
}
