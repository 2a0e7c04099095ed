//! All cores are everybody's, in proportion to what is reserved for them.
//!
//! `weight = 1024 x reserved vCPU`, at least 1; nobody gets more than `min(demand, cap)`, and what
//! they leave is divided in the same way.
//!
//! As with `cpu.shares` or `cpu.weight`, once the kernel has balanced its queues: that it takes about
//! 100 ms to do so (Leopard, section 4.2, Figure 6 (b)) is not modelled. Nobody lends: where there is no
//! right of first refusal, there is nothing to sell.

use super::{Claim, Grant, Sharing, divide};

/// Shares by weight.
#[derive(Debug, Clone, Default)]
pub struct Weights {
    parties: Vec<(u64, u64, usize)>,
}

/// Makes the rule.
pub fn policy() -> Box<dyn Sharing> {
    Box::new(Weights::default())
}

impl Sharing for Weights {
    fn share(&mut self, capacity: u64, claims: &[Claim], grants: &mut Vec<Grant>) {
        grants.clear();
        grants.resize(claims.len(), Grant::default());
        self.parties.clear();
        self.parties.extend(claims.iter().enumerate().map(|(index, claim)| {
            let weight = (claim.reserved.saturating_mul(1024) / 1_000_000).max(1);
            (claim.wanted(), weight, index)
        }));
        divide(capacity, &mut self.parties, |index, share| {
            let own = share.min(claims[index].reserved);
            grants[index] = Grant { own, borrowed: share - own, lent: 0 };
        });
    }
}
