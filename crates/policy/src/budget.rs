//! Enforcing a CPU share without the kernel's bandwidth control: when to look at what was used, when
//! to hold, and until when.

use crate::Nanos;

/// No look follows another earlier than this, so that looking costs less than what it watches over.
const MIN_STEP_NS: Nanos = 20_000;

/// A period may begin anew while at least this part of its budget, in tenths, is left.
const FRESH_TENTHS: i128 = 9;

/// What to do with the one whose CPU time is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may run; look again at this time.
    Run {
        /// When to look again.
        look_at: Nanos,
    },
    /// Its budget is exhausted; look again at this time, when it has one again.
    Hold {
        /// When to look again.
        until: Nanos,
    },
}

/// The CPU time that an instance may use in each period, and what is left of it.
///
/// As in the kernel's bandwidth control, what is not used by the end of a period is lost, and what
/// was overdrawn is paid for out of the next ones, so that the share holds in the long run however
/// late a look is.
#[derive(Debug, Clone)]
pub struct Budget {
    quota: i128,
    period: Nanos,
    /// When the current period began.
    began: Nanos,
    /// Negative: overdrawn.
    left: i128,
    /// Where the account of CPU time stood at the last look.
    used: u64,
    /// Since when it is held, if it is.
    held_since: Option<Nanos>,
    held_count: u64,
    held: Nanos,
}

impl Budget {
    /// `quota` ns of CPU time in each `period` ns, of which the first begins at `now`, when the
    /// account of CPU time stands at `used` ns. Both are at least 1.
    pub fn new(quota: Nanos, period: Nanos, now: Nanos, used: u64) -> Self {
        let quota = i128::from(quota.max(1));
        Self {
            quota,
            period: period.max(1),
            began: now,
            left: quota,
            used,
            held_since: None,
            held_count: 0,
            held: 0,
        }
    }

    /// What follows from the account standing at `used` ns at `now`. Up to `running` threads use CPU
    /// time from now on; 0 if none does, and it does not matter if one begins to before the period
    /// ends.
    pub fn look(&mut self, now: Nanos, used: u64, running: u32) -> Verdict {
        self.settle(now, used);
        if self.left <= 0 {
            let periods = u64::try_from(-self.left / self.quota + 1).unwrap_or(u64::MAX);
            if self.held_since.is_none() {
                self.held_since = Some(now);
                self.held_count = self.held_count.saturating_add(periods);
            }
            let wait = self.period.saturating_mul(periods);
            return Verdict::Hold { until: self.began.saturating_add(wait) };
        }
        self.release(now);
        let end = self.began.saturating_add(self.period);
        let exhausted = match running {
            0 => Nanos::MAX,
            running => {
                let threads = i128::from(running);
                let step = (self.left + threads - 1) / threads;
                now.saturating_add(Nanos::try_from(step).unwrap_or(Nanos::MAX).max(MIN_STEP_NS))
            }
        };
        Verdict::Run { look_at: exhausted.min(end) }
    }

    /// The instance is given something to do. If it has rested, its period begins now, so that what
    /// it does is not cut at an arbitrary place; nothing is added to what is left.
    pub fn rouse(&mut self, now: Nanos, used: u64) {
        self.settle(now, used);
        if self.left * 10 >= self.quota * FRESH_TENTHS {
            self.began = now;
        }
    }

    /// Another quota and period from now on, with a whole budget; what was overdrawn is forgiven, as
    /// the kernel does when a quota is set.
    pub fn set(&mut self, quota: Nanos, period: Nanos, now: Nanos, used: u64) {
        self.release(now);
        let (held_count, held) = (self.held_count, self.held);
        *self = Self { held_count, held, ..Self::new(quota, period, now, used) };
    }

    /// Whether it is held, as far as the last look says.
    pub fn is_held(&self) -> bool {
        self.held_since.is_some()
    }

    /// In how many periods it was held until `now`, and for how many ns.
    pub fn held(&self, now: Nanos) -> (u64, Nanos) {
        let current = self.held_since.map_or(0, |since| now.saturating_sub(since));
        (self.held_count, self.held.saturating_add(current))
    }

    fn release(&mut self, now: Nanos) {
        if let Some(since) = self.held_since.take() {
            self.held = self.held.saturating_add(now.saturating_sub(since));
        }
    }

    /// Charges what was used, and refills for the periods that have begun.
    fn settle(&mut self, now: Nanos, used: u64) {
        self.left -= i128::from(used.saturating_sub(self.used));
        self.used = self.used.max(used);
        let periods = now.saturating_sub(self.began) / self.period;
        if periods > 0 {
            self.began += periods * self.period;
            let refilled = self.left.saturating_add(self.quota * i128::from(periods));
            self.left = refilled.min(self.quota);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = 1_000_000;

    #[test]
    fn runs_until_the_budget_is_exhausted_and_then_until_the_period_ends() {
        let mut budget = Budget::new(2 * MS, 20 * MS, 0, 0);
        assert_eq!(budget.look(0, 0, 1), Verdict::Run { look_at: 2 * MS });
        assert_eq!(budget.look(2 * MS, 2 * MS, 1), Verdict::Hold { until: 20 * MS });
        assert_eq!(budget.look(20 * MS, 2 * MS, 1), Verdict::Run { look_at: 22 * MS });
        assert_eq!(budget.held(20 * MS), (1, 18 * MS));
    }

    #[test]
    fn several_threads_exhaust_it_sooner_and_preemption_later() {
        let mut budget = Budget::new(8 * MS, 20 * MS, 0, 0);
        assert_eq!(budget.look(0, 0, 4), Verdict::Run { look_at: 2 * MS });
        // Only one of them ran.
        assert_eq!(budget.look(2 * MS, 2 * MS, 1), Verdict::Run { look_at: 8 * MS });
        // Not more than the period's end.
        assert_eq!(budget.look(15 * MS, 2 * MS, 1), Verdict::Run { look_at: 20 * MS });
        assert_eq!(budget.look(15 * MS, 2 * MS, 0), Verdict::Run { look_at: 20 * MS });
        assert_eq!(budget.held(15 * MS), (0, 0));
    }

    #[test]
    fn what_was_overdrawn_is_paid_for() {
        let mut budget = Budget::new(2 * MS, 20 * MS, 0, 0);
        // Twice and a half the quota: the debt of 3 ms takes the next period's, and half of the one
        // after that.
        assert_eq!(budget.look(5 * MS, 5 * MS, 1), Verdict::Hold { until: 40 * MS });
        assert_eq!(budget.look(20 * MS, 5 * MS, 1), Verdict::Hold { until: 40 * MS });
        assert_eq!(budget.look(40 * MS, 5 * MS, 1), Verdict::Run { look_at: 41 * MS });
        assert_eq!(budget.held(40 * MS), (2, 35 * MS));
    }

    #[test]
    fn what_is_not_used_is_lost() {
        let mut budget = Budget::new(2 * MS, 20 * MS, 0, 0);
        assert_eq!(budget.look(1_000 * MS, 0, 1), Verdict::Run { look_at: 1_002 * MS });
    }

    #[test]
    fn a_rested_one_begins_its_period_with_its_work() {
        let mut budget = Budget::new(2 * MS, 20 * MS, 0, 0);
        budget.rouse(13 * MS, 0);
        assert_eq!(budget.look(13 * MS, 0, 1), Verdict::Run { look_at: 15 * MS });
        assert_eq!(budget.look(15 * MS, 2 * MS, 1), Verdict::Hold { until: 33 * MS });
        // It has just worked: its period goes on.
        budget.rouse(16 * MS, 2 * MS);
        assert_eq!(budget.look(16 * MS, 2 * MS, 1), Verdict::Hold { until: 33 * MS });
    }

    #[test]
    fn a_new_quota_forgives() {
        let mut budget = Budget::new(2 * MS, 20 * MS, 0, 0);
        assert_eq!(budget.look(9 * MS, 9 * MS, 1), Verdict::Hold { until: 80 * MS });
        budget.set(MS, 100 * MS, 10 * MS, 9 * MS);
        assert_eq!(budget.look(10 * MS, 9 * MS, 1), Verdict::Run { look_at: 11 * MS });
        assert_eq!(budget.held(10 * MS), (4, MS));
    }

    /// Something that runs whenever it may, on `threads` CPUs, looked at up to `late` ns late.
    fn greedy(quota: Nanos, period: Nanos, threads: u32, late: &[Nanos], until: Nanos) -> Nanos {
        let (mut now, mut used) = (0, 0);
        let mut budget = Budget::new(quota, period, 0, 0);
        let mut late = late.iter().cycle();
        while now < until {
            let delay = late.next().copied().unwrap_or_default();
            match budget.look(now, used, threads) {
                Verdict::Run { look_at } => {
                    assert!(look_at > now && look_at <= now + period);
                    used += (look_at + delay - now) * u64::from(threads);
                    now = look_at + delay;
                }
                Verdict::Hold { until } => {
                    assert!(until > now);
                    now = until + delay;
                }
            }
        }
        used
    }

    proptest! {
        #[test]
        fn the_share_holds_in_the_long_run(
            quota in 50_000_u64..50 * MS, period in MS..200 * MS, threads in 1_u32..9,
            late in proptest::collection::vec(0_u64..3 * MS, 1..20),
        ) {
            let until = 200 * period;
            let used = greedy(quota, period, threads, &late, until);
            let most = quota * 201 + (3 * MS + MIN_STEP_NS + period) * u64::from(threads);
            prop_assert!(used <= most, "{used} of {most}");
        }

        #[test]
        fn without_lateness_a_greedy_one_gets_exactly_its_quota(
            quota in 50_000_u64..50 * MS, period in MS..200 * MS,
        ) {
            prop_assume!(quota < period);
            let used = greedy(quota, period, 1, &[0], 100 * period);
            prop_assert!(used >= 100 * quota - MIN_STEP_NS);
            prop_assert!(used <= 101 * quota + MIN_STEP_NS);
        }

        #[test]
        fn nobody_is_held_whose_budget_is_not_exhausted(
            quota in 1_u64..50 * MS, period in MS..200 * MS,
            steps in proptest::collection::vec((0_u64..300 * MS, 0_u64..20 * MS), 1..50),
        ) {
            let (mut now, mut used, mut charged) = (0, 0, 0);
            let mut budget = Budget::new(quota, period, 0, 0);
            for (pass, use_ns) in steps {
                now += pass;
                used += use_ns;
                charged += use_ns;
                match budget.look(now, used, 1) {
                    Verdict::Run { look_at } => {
                        prop_assert!(look_at > now);
                        prop_assert_eq!(budget.held_since, None);
                    }
                    Verdict::Hold { until } => {
                        prop_assert!(charged >= quota);
                        prop_assert!(until > now);
                        // Then it has a budget, and not a whole period earlier.
                        let mut later = budget.clone();
                        let runs = matches!(later.look(until, used, 1), Verdict::Run { .. });
                        prop_assert!(runs, "held on");
                        if until > now + period {
                            let mut early = budget.clone();
                            let verdict = early.look(until - period, used, 1);
                            prop_assert_eq!(verdict, Verdict::Hold { until });
                        }
                    }
                }
            }
        }
    }
}
