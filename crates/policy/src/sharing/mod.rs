//! Whose are a worker's cores while several want them: one file per rule.
//!
//! A rule is a pure function of what the invocations on a worker ask for, exact in whole micro-vCPU. A
//! kernel does the same approximately, thread by thread; what is modelled here is what it converges to.

use crate::policies::find;
use crate::{Nanos, UnknownPolicy};

include!(concat!(env!("OUT_DIR"), "/sharing.rs"));

/// The rule where none is named.
pub const DEFAULT: &str = "resv-cpuset";

/// What an invocation asks for, in micro-vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claim {
    /// What its threads that can run would use.
    pub demand: u64,
    /// The most that it may use.
    pub cap: u64,
    /// What is reserved for it, used or not.
    pub reserved: u64,
}

impl Claim {
    /// The most that it can use now.
    pub fn wanted(&self) -> u64 {
        self.demand.min(self.cap)
    }

    /// What it can use of its reservation.
    fn wanted_reserved(&self) -> u64 {
        self.wanted().min(self.reserved)
    }
}

/// What an invocation gets, in micro-vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grant {
    /// Of what is reserved for it.
    pub own: u64,
    /// Beyond that.
    pub borrowed: u64,
    /// What others borrow of what is reserved for it.
    pub lent: u64,
}

impl Grant {
    /// What it runs on.
    pub fn total(&self) -> u64 {
        self.own + self.borrowed
    }
}

/// Decides what everybody on a worker gets.
pub trait Sharing: Send {
    /// Sets `grants`, one for each claim and in their order. Together they are no more than `capacity`,
    /// and none is more than its claim wants.
    fn share(&mut self, capacity: u64, claims: &[Claim], grants: &mut Vec<Grant>);

    /// Whether what an invocation runs on never depends on others, so that a reservation of nothing
    /// never runs.
    fn is_exclusive(&self) -> bool {
        false
    }
}

/// Makes the rule of this name.
///
/// # Errors
/// There is none of this name; the error lists those that there are.
pub fn from_name(name: &str) -> Result<Box<dyn Sharing>, UnknownPolicy> {
    find("sharing", name, POLICIES)
}

/// The names of all rules, in order.
pub fn names() -> Vec<&'static str> {
    POLICIES.iter().map(|(name, _)| *name).collect()
}

/// How long `work` (micro-vCPU x ns) takes at a `rate` in micro-vCPU, in whole nanoseconds; None if it
/// is never done.
pub fn time_for(work: u128, rate: u64) -> Option<Nanos> {
    if work == 0 {
        return Some(0);
    }
    if rate == 0 {
        return None;
    }
    Some(Nanos::try_from(work.div_ceil(u128::from(rate))).unwrap_or(Nanos::MAX))
}

/// Bytes that preemptible invocations use of what others have reserved, where they use so much
/// together: what does not fit beside the reservations. Those who lend it are who has more reserved than
/// they use, each in proportion to that ([`divide`]).
pub fn lent_memory(capacity: u64, reserved: u64, preemptible: u64) -> u64 {
    preemptible.saturating_sub(capacity.saturating_sub(reserved))
}

/// Divides `amount` in proportion to weights, nobody getting more than their limit, and what they leave
/// going to the others (weighted max-min fairness). All is given out unless all limits are reached.
/// `take(index, share)` is called once for everyone whose weight is above zero.
pub fn divide(
    amount: u64,
    parties: &mut [(u64, u64, usize)], // limit, weight, index
    mut take: impl FnMut(usize, u64),
) {
    // Who has the smallest limit for their weight is satisfied first.
    parties.sort_unstable_by(|a, b| {
        let (x, y) = (u128::from(a.0) * u128::from(b.1), u128::from(b.0) * u128::from(a.1));
        x.cmp(&y).then(a.2.cmp(&b.2))
    });
    let mut weights: u128 = parties.iter().map(|party| u128::from(party.1)).sum();
    let mut left = amount;
    for &(limit, weight, index) in parties.iter().filter(|party| party.1 > 0) {
        // At most `left`, since no weight is above the sum of those that remain.
        let fair = (u128::from(left) * u128::from(weight) / weights) as u64;
        let share = fair.min(limit);
        take(index, share);
        left -= share;
        weights -= u128::from(weight);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VCPU: u64 = 1_000_000;

    fn share(rule: &str, cores: u64, claims: &[Claim]) -> Vec<Grant> {
        let mut grants = Vec::new();
        from_name(rule).unwrap().share(cores, claims, &mut grants);
        grants
    }

    fn claim(threads: u64, cap: u64, spot: u64) -> Claim {
        Claim { demand: threads * VCPU, cap: cap * VCPU, reserved: (cap - spot) * VCPU }
    }

    fn grant(own: u64, borrowed: u64, lent: u64) -> Grant {
        Grant { own: own * VCPU, borrowed: borrowed * VCPU, lent: lent * VCPU }
    }

    /// Leopard, Figure 4: four CPUs; F1 has cpu-cap 4 and one spot core, F2 has cpu-cap 3 and two.
    #[test]
    fn the_worked_example_of_the_paper() {
        let at = |f1, f2| share("resv-cpuset", 4 * VCPU, &[claim(f1, 4, 1), claim(f2, 3, 2)]);
        assert_eq!(at(1, 1), [grant(1, 0, 0), grant(1, 0, 0)], "t0: each runs one thread");
        assert_eq!(at(1, 3), [grant(1, 0, 2), grant(1, 2, 0)], "t1: F2 grows on F1's idle cores");
        assert_eq!(at(4, 3), [grant(3, 0, 0), grant(1, 0, 0)], "t2: F2 shrinks at once");
        let alone = share("resv-cpuset", 4 * VCPU, &[claim(4, 4, 1)]);
        assert_eq!(alone, [grant(3, 1, 0)], "t3: F2 is gone, F1 expands to all cores");
    }

    /// Leopard, Figure 6: 32 cores; F1 runs 32 tasks, F2 one, then 16; each reserves 16.
    #[test]
    fn pinning_wastes_and_weights_do_not() {
        let at =
            |rule, threads| share(rule, 32 * VCPU, &[claim(32, 32, 16), claim(threads, 16, 0)]);
        assert_eq!(at("pinned", 1), [grant(16, 0, 0), grant(1, 0, 0)]);
        assert_eq!(at("resv-cpuset", 1), [grant(16, 15, 0), grant(1, 0, 15)]);
        assert_eq!(at("weights", 1), [grant(16, 15, 0), grant(1, 0, 0)]);
        for rule in ["pinned", "resv-cpuset", "weights"] {
            assert_eq!(at(rule, 16), [grant(16, 0, 0), grant(16, 0, 0)], "{rule}");
        }
    }

    #[test]
    fn spot_work_shares_what_is_left_equally() {
        let spot = |threads| claim(threads, threads, threads);
        let grants = share("resv-cpuset", 4 * VCPU, &[claim(1, 2, 0), spot(1), spot(8), spot(8)]);
        assert_eq!(grants[1], grant(0, 1, 0), "who wants less than a share has all");
        assert_eq!((grants[2].borrowed, grants[3].borrowed), (VCPU, VCPU));
        assert_eq!(grants[0], grant(1, 0, 1), "two cores are nobody's: the third is lent");
    }

    #[test]
    fn work_takes_until_the_next_whole_nanosecond() {
        assert_eq!(time_for(0, 0), Some(0));
        assert_eq!(time_for(1, 0), None);
        assert_eq!(time_for(10, 3), Some(4));
    }

    fn claims() -> impl Strategy<Value = (u64, Vec<Claim>)> {
        let one = (0..40 * VCPU, 0..20 * VCPU, 0..=100_u64);
        (1..64 * VCPU, prop::collection::vec(one, 0..20)).prop_map(|(capacity, parts)| {
            let mut free = capacity;
            let claim = |(demand, cap, percent): (u64, u64, u64)| {
                // What is reserved together is no more than there is: admission sees to it.
                let reserved = (cap * percent / 100).min(free);
                free -= reserved;
                Claim { demand, cap, reserved }
            };
            (capacity, parts.into_iter().map(claim).collect())
        })
    }

    proptest! {
        #[test]
        fn nobody_gets_too_much_and_nothing_is_lost((capacity, claims) in claims()) {
            let reserved: u64 = claims.iter().map(|claim| claim.reserved).sum();
            let wanted: u64 = claims.iter().map(Claim::wanted).sum();
            for rule in names() {
                let grants = share(rule, capacity, &claims);
                prop_assert_eq!(grants.len(), claims.len());
                for (claim, grant) in claims.iter().zip(&grants) {
                    prop_assert!(grant.total() <= claim.wanted(), "{}", rule);
                    prop_assert!(grant.own + grant.lent <= claim.reserved, "{}", rule);
                }
                let used: u64 = grants.iter().map(Grant::total).sum();
                prop_assert!(used <= capacity, "{}", rule);
                if rule != "pinned" {
                    prop_assert_eq!(used, wanted.min(capacity), "{} idles", rule);
                }
                if rule == "resv-cpuset" {
                    for (claim, grant) in claims.iter().zip(&grants) {
                        prop_assert_eq!(grant.own, claim.wanted_reserved(), "first refusal");
                    }
                    let borrowed: u64 = grants.iter().map(|grant| grant.borrowed).sum();
                    let lent: u64 = grants.iter().map(|grant| grant.lent).sum();
                    let unreserved = borrowed.min(capacity - reserved);
                    prop_assert_eq!(borrowed, lent + unreserved);
                }
            }
        }
    }
}
