//! How long a task takes under a quota that is enforced to the nanosecond.
//!
//! Equation (2) of *Demystifying Serverless Costs on Public Platforms* (EuroSys'26, section 4.2), in
//! whole nanoseconds: a task that needs T of CPU time under a quota Q in a period P takes
//!
//! ```text
//! d = floor(T / Q) P + T mod Q          if T mod Q is not 0
//!     (floor(T / Q) - 1) P + Q          otherwise
//! ```
//!
//! It begins at the start of a period with the whole quota. [`duration_from`] begins it anywhere
//! within a period, and [`mean_duration`] averages over where.

use crate::{Control, Nanos};

/// Equation (2): the wall-clock time of a task that needs `cpu_time` and begins with a period.
///
/// A task that needs nothing takes none. The result is in ns; it is 128 bits wide because a long
/// task under a small quota takes longer than 64 bits hold.
#[must_use]
pub fn duration(control: Control, cpu_time: Nanos) -> u128 {
    wall(control, u128::from(cpu_time))
}

fn wall(control: Control, cpu_time: u128) -> u128 {
    let (period, quota) = (u128::from(control.period()), u128::from(control.quota()));
    if cpu_time == 0 {
        return 0;
    }
    // Whole quotas before the last, which may be a part: one formula for both cases of Equation (2).
    let before = (cpu_time - 1) / quota;
    before * period + (cpu_time - before * quota)
}

/// The same for a task that begins `phase` after a period did, the group having been idle so that
/// its whole quota is there.
///
/// Until the period ends it runs for the quota or for what is left of the period, whichever is
/// less; then Equation (2) holds for the rest.
///
/// # Panics
/// `phase` is not below the period.
#[must_use]
pub fn duration_from(control: Control, cpu_time: Nanos, phase: Nanos) -> u128 {
    assert!(phase < control.period(), "a phase lies within the period");
    let left = u128::from(control.period() - phase);
    let first = left.min(u128::from(control.quota()));
    let cpu_time = u128::from(cpu_time);
    if cpu_time <= first { cpu_time } else { left + wall(control, cpu_time - first) }
}

/// The mean of [`duration_from`] over all phases `0..period`, in ns, as a fraction of two integers:
/// the sum over the phases, and their number (the period).
#[must_use]
pub fn mean_duration(control: Control, cpu_time: Nanos) -> (u128, u128) {
    let (period, quota) = (u128::from(control.period()), u128::from(control.quota()));
    let need = u128::from(cpu_time);
    if need == 0 {
        return (0, period);
    }
    // Phases that leave at least a quota: the first run is the whole quota, whatever the phase.
    let early = period - quota + 1;
    let mut sum = if need <= quota {
        need * early
    } else {
        // left = quota..=period
        sum_of(quota, period) + early * wall(control, need - quota)
    };
    // Phases that leave less: left = 1..quota, all of which is run.
    let fits = need.min(quota); // for left >= need the task ends within it
    sum += need * (quota - fits);
    let cut = fits - 1; // left = 1..=cut is too short, so need - left is at least 1
    sum += sum_of(1, cut) + sum_of_walls(control, need, cut);
    (sum, period)
}

/// `from + ... + to`; 0 if there is nothing between.
fn sum_of(from: u128, to: u128) -> u128 {
    if to < from { 0 } else { (from + to) * (to - from + 1) / 2 }
}

/// The sum of `wall(need - left)` for left = 1..=cut, where `cut` is below `need` and the quota.
fn sum_of_walls(control: Control, need: u128, cut: u128) -> u128 {
    if cut == 0 {
        return 0;
    }
    let (period, quota) = (u128::from(control.period()), u128::from(control.quota()));
    // need - left runs through fewer than a quota of consecutive values, so that the number of
    // whole quotas before the last takes at most two values: `high`, and one less.
    let (least, most) = (need - cut, need - 1);
    let high = (most - 1) / quota;
    let first_high = (high * quota + 1).max(least); // values from here on have `high` before them
    let part = |from: u128, to: u128, before: u128| {
        if to < from { 0 } else { sum_of(from, to) + (to - from + 1) * before * (period - quota) }
    };
    let mut sum = part(first_high, most, high);
    if first_high > least {
        sum += part(least, first_high - 1, high - 1);
    }
    sum
}

/// The quotas at which a task that needs `cpu_time` becomes faster at once: the smallest quota with
/// which it needs no more than n periods, for n = 1, 2, ... `most`.
///
/// Just below such a quota the task waits for another period; these are the jumps of the cost
/// paper's Figures 10 and 11, at T, T/2, T/3, ...
#[must_use]
pub fn jumps(cpu_time: Nanos, most: u64) -> Vec<Nanos> {
    (1..=most).map(|periods| cpu_time.div_ceil(periods)).filter(|&quota| quota > 0).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    /// Equation (2) as it is printed.
    fn printed(period: u128, quota: u128, need: u128) -> u128 {
        if need.is_multiple_of(quota) {
            (need / quota - 1) * period + quota
        } else {
            need / quota * period + need % quota
        }
    }

    /// A clock that runs the task a nanosecond, or a microsecond, at a time.
    fn stepped(period: u64, quota: u64, need: u64, phase: u64) -> u64 {
        let (mut now, mut left, mut need) = (phase, quota, need);
        while need > 0 {
            if left > 0 {
                left -= 1;
                need -= 1;
            }
            now += 1;
            if now % period == 0 {
                left = quota;
            }
        }
        now - phase
    }

    #[test]
    fn the_published_examples_come_out() {
        // 51.8 ms of CPU time, the mean of the Huawei trace, at seven sizes and six periods. At 0.07
        // vCPU it is a whole number of quotas for the three shortest periods; in floating point the
        // remainder is not quite 0, and 740 ms come out for each of them.
        let shares = [70, 100, 250, 330, 500, 750, 1000];
        let published: [(u64, [u64; 7]); 6] = [
            (5, [735_350, 515_300, 205_550, 155_650, 101_800, 68_050, 51_800]),
            (10, [730_700, 510_800, 201_800, 152_300, 101_800, 66_800, 51_800]),
            (20, [721_400, 501_800, 201_800, 145_600, 101_800, 66_800, 51_800]),
            (40, [721_400, 483_800, 201_800, 132_200, 91_800, 61_800, 51_800]),
            (80, [721_400, 483_800, 171_800, 105_400, 91_800, 51_800, 51_800]),
            (100, [702_800, 501_800, 201_800, 118_800, 101_800, 51_800, 51_800]),
        ];
        for (period, durations) in published {
            for (share, micros) in shares.into_iter().zip(durations) {
                let control = Control::of_share(period * MS, share * 1000).unwrap();
                let found = duration(control, 51_800_000);
                assert_eq!(found, u128::from(micros) * 1000, "period {period}, share {share}");
            }
        }
    }

    #[test]
    fn a_task_of_whole_quotas_does_not_wait_for_another_period() {
        let control = Control::new(20 * MS, 10 * MS).unwrap();
        assert_eq!(duration(control, 10 * MS), u128::from(10 * MS));
        assert_eq!(duration(control, 20 * MS), u128::from(30 * MS));
        assert_eq!(duration(control, 20 * MS + 1), u128::from(40 * MS + 1));
        assert_eq!(duration(control, 0), 0);
    }

    #[test]
    fn the_jumps_are_where_the_duration_falls() {
        let need = 17_263_000;
        for (periods, quota) in (1..).zip(jumps(need, 8)) {
            let at = duration(Control::new(20 * MS, quota).unwrap(), need);
            let below = duration(Control::new(20 * MS, quota - 1).unwrap(), need);
            assert!(at <= u128::from(periods * 20 * MS), "{periods} periods suffice");
            assert!(below > u128::from(periods * 20 * MS), "below it, they do not");
        }
    }

    #[test]
    fn the_longest_task_does_not_overflow() {
        let control = Control::new(1000 * MS, 1).unwrap();
        assert_eq!(duration(control, u64::MAX), u128::from(u64::MAX - 1) * 1_000_000_000 + 1);
        let (sum, phases) = mean_duration(control, u64::MAX);
        assert!(sum / phases > u128::from(u64::MAX));
    }

    proptest! {
        #[test]
        fn it_is_the_printed_equation(
            period in 1_000_000_u64..=1_000_000_000, share in 1_u64..=1_000_000,
            need in 1_u64..=10_000_000_000,
        ) {
            let Ok(control) = Control::of_share(period, share) else { return Ok(()) };
            let quota = u128::from(control.quota());
            prop_assert_eq!(
                duration(control, need),
                printed(u128::from(period), quota, u128::from(need))
            );
        }

        #[test]
        fn it_lies_between_the_cpu_time_and_the_reciprocal(
            period in 1_000_000_u64..=1_000_000_000, share in 1_u64..=1_000_000,
            need in 1_u64..=10_000_000_000,
        ) {
            let Ok(control) = Control::of_share(period, share) else { return Ok(()) };
            let taken = duration(control, need);
            prop_assert!(taken >= u128::from(need));
            // d Q <= T P: nobody is slower than the share says, which is the over-allocation.
            prop_assert!(taken * u128::from(control.quota()) <= u128::from(need) * u128::from(period));
        }

        #[test]
        fn a_phase_is_stepped_through(
            quota in 1_u64..=12, spare in 0_u64..=12, need in 0_u64..=80, phase in 0_u64..24,
        ) {
            // The kernel's bounds do not matter to the arithmetic; small numbers reach every case.
            let period = quota + spare;
            let control = Control { period, quota };
            let phase = phase % period;
            let expected = stepped(period, quota, need, phase);
            prop_assert_eq!(duration_from(control, need, phase), u128::from(expected));
        }

        #[test]
        fn the_mean_is_the_mean(quota in 1_u64..=12, spare in 0_u64..=12, need in 0_u64..=80) {
            let control = Control { period: quota + spare, quota };
            let sum: u128 =
                (0..control.period()).map(|phase| duration_from(control, need, phase)).sum();
            prop_assert_eq!(mean_duration(control, need), (sum, u128::from(control.period())));
        }
    }
}
