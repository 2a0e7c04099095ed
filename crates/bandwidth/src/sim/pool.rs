//! The group's pool of runtime and its timers: `struct cfs_bandwidth` of kernel/sched/sched.h.
//!
//! Pure arithmetic: times come in, nothing is scheduled here. Names follow the kernel's functions of
//! kernel/sched/fair.c, which are the same from 5.4 (which ended the expiry of local runtime) to 6.18
//! but for where the period timer's grid begins.

use crate::Nanos;

/// Slack is not handed out this short before a refill (`min_bandwidth_expiration`).
const MIN_EXPIRATION: i64 = 2_000_000;
/// How long slack is gathered before it is handed out (`cfs_bandwidth_slack_period`).
const SLACK_PERIOD: i64 = 5_000_000;

/// The pool of a group. A group without a quota has no pool.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    period: i64,
    quota: i64,
    burst: i64,
    slice: i64,
    /// Below this a CPU keeps what it has left when it falls idle (`min_cfs_rq_runtime`).
    kept: i64,
    runtime: i64,
    /// The grid of the period timer: it expires at `offset` plus whole periods.
    offset: i64,
    /// When the period timer expires next, while it is active.
    period_timer: Option<i64>,
    /// When gathered slack is handed out.
    slack_timer: Option<i64>,
    idle: bool,
    /// CPUs that are throttled, in the order in which they were.
    throttled: Vec<usize>,
    pub periods: u64,
    pub throttled_periods: u64,
}

/// A CPU's share of the pool (`runtime_remaining` of its `cfs_rq`); below zero it is debt.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Local {
    pub remaining: i64,
    pub throttled: bool,
}

impl Pool {
    /// A pool that is full, its timer not yet started.
    pub(super) fn new(
        period: Nanos,
        quota: Nanos,
        burst: Nanos,
        slice: Nanos,
        offset: Nanos,
    ) -> Self {
        let signed = |time: Nanos| i64::try_from(time).unwrap_or(i64::MAX / 4);
        Self {
            period: signed(period),
            quota: signed(quota),
            burst: signed(burst),
            slice: signed(slice),
            kept: 1_000_000,
            runtime: signed(quota),
            offset: signed(offset),
            period_timer: None,
            slack_timer: None,
            idle: false,
            throttled: Vec::new(),
            periods: 0,
            throttled_periods: 0,
        }
    }

    /// The same pool, of whose slices a CPU that falls idle keeps so much at most.
    pub(super) fn keeping(self, kept: Nanos) -> Self {
        Self { kept: i64::try_from(kept).unwrap_or(i64::MAX / 4), ..self }
    }

    /// When a timer of the pool expires next.
    pub(super) fn next_timer(&self) -> Option<i64> {
        match (self.period_timer, self.slack_timer) {
            (Some(period), Some(slack)) => Some(period.min(slack)),
            (period, slack) => period.or(slack),
        }
    }

    /// `account_cfs_rq_runtime`: charges what a CPU has run, and takes another slice if it has used
    /// up its own. False: there is nothing left, and the CPU has to reschedule.
    pub(super) fn account(&mut self, now: i64, local: &mut Local, ran: i64) -> bool {
        local.remaining -= ran;
        local.remaining > 0 || local.throttled || self.assign(now, local, self.slice)
    }

    /// `__assign_cfs_rq_runtime`: fills a CPU's share up to `target`, as far as the pool goes.
    pub(super) fn assign(&mut self, now: i64, local: &mut Local, target: i64) -> bool {
        self.start(now);
        if self.runtime > 0 {
            let amount = self.runtime.min(target - local.remaining);
            self.runtime -= amount;
            local.remaining += amount;
            self.idle = false;
        }
        local.remaining > 0
    }

    /// `start_cfs_bandwidth`: the timer goes on along its grid.
    fn start(&mut self, now: i64) {
        if self.period_timer.is_none() {
            let passed = (now - self.offset).div_euclid(self.period) + 1;
            self.period_timer = Some(self.offset + passed * self.period);
        }
    }

    /// `throttle_cfs_rq`: throttles a CPU unless the pool has got something since.
    pub(super) fn throttle(&mut self, now: i64, cpu: usize, local: &mut Local) -> bool {
        if self.assign(now, local, 1) {
            return false;
        }
        local.throttled = true;
        self.throttled.push(cpu);
        true
    }

    /// `__return_cfs_rq_runtime`: a CPU whose last thread of the group sleeps gives back what it has
    /// beyond what it keeps.
    pub(super) fn give_back(&mut self, now: i64, local: &mut Local) {
        let slack = local.remaining - self.kept;
        if slack <= 0 {
            return;
        }
        self.runtime += slack;
        local.remaining -= slack;
        let waiting = self.runtime > self.slice && !self.throttled.is_empty();
        if waiting
            && self.slack_timer.is_none()
            && !self.refilled_within(now, SLACK_PERIOD + MIN_EXPIRATION)
        {
            self.slack_timer = Some(now + SLACK_PERIOD);
        }
    }

    fn refilled_within(&self, now: i64, time: i64) -> bool {
        self.period_timer.is_some_and(|expires| expires - now < time)
    }

    /// Lets the timers that have expired do their work, and tells which CPUs are unthrottled.
    pub(super) fn expire(&mut self, now: i64, locals: &mut [Local], freed: &mut Vec<usize>) {
        if self.period_timer.is_some_and(|expires| expires <= now) {
            self.period_expired(now, locals, freed);
        }
        if self.slack_timer.is_some_and(|expires| expires <= now) {
            self.slack_timer = None;
            if !self.refilled_within(now, MIN_EXPIRATION) && self.runtime > self.slice {
                self.distribute(locals, freed);
            }
        }
    }

    /// `do_sched_cfs_period_timer`.
    fn period_expired(&mut self, now: i64, locals: &mut [Local], freed: &mut Vec<usize>) {
        self.period_timer = Some(now + self.period);
        self.periods += 1;
        self.runtime = (self.runtime + self.quota).min(self.quota + self.burst);
        if self.throttled.is_empty() {
            if self.idle {
                self.period_timer = None;
            }
            self.idle = true;
            return;
        }
        self.throttled_periods += 1;
        self.distribute(locals, freed);
        self.idle = false;
    }

    /// `distribute_cfs_runtime`: pays debts, first come, first served, while there is runtime.
    fn distribute(&mut self, locals: &mut [Local], freed: &mut Vec<usize>) {
        let runtime = &mut self.runtime;
        self.throttled.retain(|&cpu| {
            let local = &mut locals[cpu];
            let amount = (*runtime).min(1 - local.remaining);
            *runtime -= amount;
            local.remaining += amount;
            local.throttled = local.remaining <= 0;
            if !local.throttled {
                freed.push(cpu);
            }
            local.throttled
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    fn pool(quota: i64) -> Pool {
        Pool::new(20_000_000, quota.unsigned_abs(), 0, 5_000_000, 0)
    }

    #[test]
    fn an_overrun_is_paid_back_before_the_cpu_runs_again() {
        // 1.447 ms in 20 ms, noticed after 4 ms: 2.553 ms of debt are paid by two refills.
        let (mut pool, mut locals, mut freed) = (pool(1_447_000), [Local::default()], Vec::new());
        assert!(pool.account(0, &mut locals[0], 0), "a fresh pool gives a slice");
        assert_eq!(locals[0].remaining, 1_447_000);
        assert!(!pool.account(4 * MS, &mut locals[0], 4 * MS));
        assert!(pool.throttle(4 * MS, 0, &mut locals[0]));
        pool.expire(20 * MS, &mut locals, &mut freed);
        assert!(freed.is_empty(), "one quota is less than the debt");
        pool.expire(40 * MS, &mut locals, &mut freed);
        assert_eq!(freed, [0]);
        assert_eq!((locals[0].remaining, pool.runtime), (1, 2 * 1_447_000 - 2_553_000 - 1));
        assert_eq!((pool.periods, pool.throttled_periods), (2, 2));
    }

    #[test]
    fn the_timer_stops_after_an_idle_period_and_goes_on_along_its_grid() {
        let (mut pool, mut locals, mut freed) = (pool(10 * MS), [Local::default()], Vec::new());
        pool.account(3 * MS, &mut locals[0], 0);
        assert_eq!(pool.next_timer(), Some(20 * MS));
        pool.expire(20 * MS, &mut locals, &mut freed);
        assert_eq!(pool.next_timer(), Some(40 * MS), "one idle period is waited for");
        pool.expire(40 * MS, &mut locals, &mut freed);
        assert_eq!(pool.next_timer(), None);
        locals[0].remaining = 0;
        pool.account(55 * MS, &mut locals[0], 0);
        assert_eq!(pool.next_timer(), Some(60 * MS));
    }

    #[test]
    fn slack_wakes_a_throttled_cpu() {
        let mut pool = Pool::new(100_000_000, 20_000_000, 0, 5_000_000, 0);
        let (mut locals, mut freed) = ([Local::default(); 2], Vec::new());
        locals[0].remaining = 12 * MS; // one CPU holds most of it
        pool.runtime = 0;
        pool.start(0);
        assert!(pool.throttle(10 * MS, 1, &mut locals[1]));
        pool.give_back(10 * MS, &mut locals[0]);
        assert_eq!((locals[0].remaining, pool.runtime), (MS, 11 * MS));
        assert_eq!(pool.next_timer(), Some(15 * MS));
        pool.expire(15 * MS, &mut locals, &mut freed);
        assert_eq!(freed, [1]);
    }

    #[test]
    fn burst_keeps_what_was_not_used() {
        let mut pool = Pool::new(20_000_000, 5_000_000, 3_000_000, 5_000_000, 0);
        pool.runtime = 1_000_000;
        let (mut locals, mut freed) = ([Local::default()], Vec::new());
        pool.start(0);
        pool.expire(20 * MS, &mut locals, &mut freed);
        assert_eq!(pool.runtime, 6_000_000);
        pool.expire(40 * MS, &mut locals, &mut freed);
        assert_eq!(pool.runtime, 8_000_000, "at most the quota and the burst");
    }

    proptest! {
        #[test]
        fn runtime_is_neither_made_nor_lost(
            quota in 1_000_000_i64..40_000_000, steps in prop::collection::vec((0_usize..3, 0_i64..6_000_000), 1..200),
        ) {
            // Without burst a full pool refuses a refill: that is the only loss, and is counted.
            let mut pool = Pool::new(20_000_000, quota.unsigned_abs(), 0, 5_000_000, 7);
            let (mut locals, mut freed) = ([Local::default(); 3], Vec::new());
            let (mut now, mut charged, mut refilled) = (0, 0, quota);
            for (cpu, ran) in steps {
                now += ran;
                while pool.next_timer().is_some_and(|at| at <= now) {
                    let at = pool.next_timer().unwrap();
                    let before = pool.runtime + locals.iter().map(|l| l.remaining).sum::<i64>();
                    pool.expire(at, &mut locals, &mut freed);
                    refilled += pool.runtime + locals.iter().map(|l| l.remaining).sum::<i64>() - before;
                }
                if !locals[cpu].throttled {
                    charged += ran;
                    if !pool.account(now, &mut locals[cpu], ran) {
                        pool.throttle(now, cpu, &mut locals[cpu]);
                    }
                }
                let held = pool.runtime + locals.iter().map(|l| l.remaining).sum::<i64>();
                prop_assert_eq!(held, refilled - charged);
                prop_assert!(pool.runtime >= 0 && pool.runtime <= quota);
                for local in &locals {
                    prop_assert_eq!(local.throttled, local.throttled && local.remaining <= 0);
                }
            }
        }
    }
}
