//! The closed form when the CPU time is not the same each time, or a task begins at any time.
//!
//! Within [`crate::closed_form`] a duration is one number. Here the CPU time is a distribution of
//! weighted points, and the phase (how long before the task its period began) is one value or all of
//! `0..period`, each as likely as another. Means are fractions of integers and quantiles are values
//! that occur: nothing is rounded.

use crate::closed_form::{duration, duration_from, mean_duration};
use crate::{Control, Nanos};

/// Where within a period a task begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// So long after the period began; 0 is Equation (2).
    At(Nanos),
    /// Anywhere: every ns of the period is as likely.
    Random,
}

/// CPU time as points with weights, in ascending order, each value once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuTime {
    points: Vec<(Nanos, u64)>,
    weight: u64,
}

/// Why something has no mean or quantile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum ExpectedError {
    #[error("there is no CPU time with a weight above 0")]
    NoCpuTime,
    #[error("the weights of the CPU times add up to more than 2^64")]
    Weights,
    #[error("the phase {phase} ns does not lie within the period of {period} ns")]
    Phase { phase: Nanos, period: Nanos },
    #[error("the sum of the durations is beyond 2^128 ns")]
    Sum,
    #[error("{numerator}/{denominator} is no share of 1 with at most 6 decimals")]
    Share { numerator: u64, denominator: u64 },
}

/// Largest denominator of a quantile, so that products with weights and phases fit 128 bits.
const MAX_DENOMINATOR: u64 = 1_000_000;

impl CpuTime {
    /// Points in any order; equal values are joined, and weights of 0 left out.
    ///
    /// # Errors
    /// No point has a weight, or the weights together are beyond 64 bits.
    pub fn new(points: &[(Nanos, u64)]) -> Result<Self, ExpectedError> {
        let mut sorted: Vec<_> = points.iter().copied().filter(|&(_, weight)| weight > 0).collect();
        sorted.sort_unstable();
        let mut weight = 0_u64;
        let mut joined: Vec<(Nanos, u64)> = Vec::with_capacity(sorted.len());
        for (value, own) in sorted {
            weight = weight.checked_add(own).ok_or(ExpectedError::Weights)?;
            match joined.last_mut() {
                Some(last) if last.0 == value => last.1 += own,
                _ => joined.push((value, own)),
            }
        }
        if joined.is_empty() {
            Err(ExpectedError::NoCpuTime)
        } else {
            Ok(Self { points: joined, weight })
        }
    }

    /// The points, ascending.
    #[must_use]
    pub fn points(&self) -> &[(Nanos, u64)] {
        &self.points
    }

    /// Sum of value times weight, and of the weights: the mean is their quotient.
    #[must_use]
    pub fn mean(&self) -> (u128, u128) {
        // A value and the sum of the weights have 64 bits each.
        let sum = self.points.iter().map(|&(value, own)| u128::from(value) * u128::from(own)).sum();
        (sum, u128::from(self.weight))
    }

    /// The smallest value that at least `numerator / denominator` of the weight is at or below.
    ///
    /// # Errors
    /// It is no share.
    pub fn quantile(&self, numerator: u64, denominator: u64) -> Result<Nanos, ExpectedError> {
        let wanted = wanted(u128::from(self.weight), numerator, denominator)?;
        let mut below = 0_u128;
        for &(value, own) in &self.points {
            below += u128::from(own);
            if below * u128::from(denominator) >= wanted {
                return Ok(value);
            }
        }
        unreachable!("a share is at most 1")
    }
}

fn wanted(total: u128, numerator: u64, denominator: u64) -> Result<u128, ExpectedError> {
    if numerator > denominator || denominator == 0 || denominator > MAX_DENOMINATOR {
        return Err(ExpectedError::Share { numerator, denominator });
    }
    // A share of 0 asks for the least case, which is one that occurs.
    Ok((total * u128::from(numerator)).max(1))
}

fn checked(control: Control, phase: Phase) -> Result<(), ExpectedError> {
    match phase {
        Phase::At(phase) if phase >= control.period() => {
            Err(ExpectedError::Phase { phase, period: control.period() })
        }
        _ => Ok(()),
    }
}

/// The mean duration as a fraction: a sum in ns, and how many equally likely cases it is of.
///
/// # Errors
/// The phase is beyond the period, or the sum does not fit 128 bits.
pub fn mean(control: Control, cpu: &CpuTime, phase: Phase) -> Result<(u128, u128), ExpectedError> {
    checked(control, phase)?;
    let mut sum = 0_u128;
    for &(value, own) in &cpu.points {
        let each = match phase {
            Phase::At(phase) => duration_from(control, value, phase),
            Phase::Random => mean_duration(control, value).0,
        };
        sum = each
            .checked_mul(u128::from(own))
            .and_then(|part| sum.checked_add(part))
            .ok_or(ExpectedError::Sum)?;
    }
    let cases = match phase {
        Phase::At(_) => u128::from(cpu.weight),
        Phase::Random => u128::from(cpu.weight) * u128::from(control.period()),
    };
    Ok((sum, cases))
}

/// The smallest duration that at least `numerator / denominator` of all cases do not exceed.
///
/// # Errors
/// The phase is beyond the period, or it is no share.
pub fn quantile(
    control: Control,
    cpu: &CpuTime,
    phase: Phase,
    numerator: u64,
    denominator: u64,
) -> Result<u128, ExpectedError> {
    checked(control, phase)?;
    if let Phase::At(phase) = phase {
        // More CPU time never takes less time, so that the order is that of the CPU times.
        return Ok(duration_from(control, cpu.quantile(numerator, denominator)?, phase));
    }
    let total = u128::from(cpu.weight) * u128::from(control.period());
    let wanted = wanted(total, numerator, denominator)?;
    let enough = |bound: u128| {
        let within: u128 = cpu
            .points
            .iter()
            .map(|&(value, own)| within(control, value, bound) * u128::from(own))
            .sum();
        within * u128::from(denominator) >= wanted
    };
    // No phase makes a task faster than its CPU time, nor slower than an empty period before it.
    let (least, most) = (cpu.points[0].0, cpu.points[cpu.points.len() - 1].0);
    let (mut low, mut high) =
        (u128::from(least), duration(control, most) + u128::from(control.period()));
    while low < high {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(low)
}

/// How many phases of `0..period` let a task that needs `cpu_time` end within `bound`.
#[must_use]
pub fn within(control: Control, cpu_time: Nanos, bound: u128) -> u128 {
    let (period, quota) = (u128::from(control.period()), u128::from(control.quota()));
    let need = u128::from(cpu_time);
    if bound < need {
        return 0;
    }
    if need <= quota || quota == period {
        return period; // never throttled
    }
    // Phases that leave at least a quota of the period run it, wait for the rest of the period, and
    // then are Equation (2): the time that is left, plus a constant.
    let rest = need - quota;
    let after = rest + (rest - 1) / quota * (period - quota);
    let early = bound.saturating_sub(after).min(period).saturating_sub(quota - 1);
    // Phases that leave less run on into the next period: the CPU time, plus as many throttles as
    // whole quotas are left beyond the last. At most `waits` of them fit into the bound.
    let waits = (bound - need) / (period - quota);
    let shortest = need.saturating_sub((waits + 1).saturating_mul(quota)).max(1);
    early + quota.saturating_sub(shortest)
}

/// A quota at which a task becomes faster at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// How many periods it needs from there on, if it begins with one.
    pub periods: u64,
    /// The quota.
    pub quota: Nanos,
    /// [`duration`] with a quota 1 ns less, in ns.
    pub below: u128,
    /// [`duration`] with this quota, in ns.
    pub at: u128,
    /// [`mean_duration`] with a quota 1 ns less, as the sum in ns over all phases.
    pub mean_below: u128,
    /// [`mean_duration`] with this quota, as the sum in ns over all phases.
    pub mean_at: u128,
}

/// The jumps of a task between two quotas, both included, from the largest quota down.
///
/// They are at T, T/2, T/3, ... ([`crate::closed_form::jumps`]); no more than `most` of them. If the
/// task begins with a period, the duration falls by what is left of a period, P - Q. If it begins
/// anywhere, the mean falls by (P - Q)^2 / P at the same quotas, at T itself by half of that: a task
/// that begins with less than a quota of its period left has a jump that depends on how much, so that
/// the jumps of those tasks together are a slope without a step.
///
/// # Errors
/// The period is not one.
pub fn steps(
    period: Nanos,
    cpu_time: Nanos,
    (least, largest): (Nanos, Nanos),
    most: usize,
) -> Result<Vec<Step>, crate::ControlError> {
    let largest = largest.min(period);
    let mut found = Vec::new();
    if largest == 0 || cpu_time == 0 {
        return Ok(found);
    }
    for periods in cpu_time.div_ceil(largest).max(1).. {
        let quota = cpu_time.div_ceil(periods);
        if quota < least.max(2) || found.len() == most {
            break;
        }
        if quota > largest {
            continue; // rounding up may lead above it
        }
        let (at, below) = (Control::new(period, quota)?, Control::new(period, quota - 1)?);
        found.push(Step {
            periods,
            quota,
            below: duration(below, cpu_time),
            at: duration(at, cpu_time),
            mean_below: mean_duration(below, cpu_time).0,
            mean_at: mean_duration(at, cpu_time).0,
        });
    }
    // Of several n that round up to the same quota the least is the one that it is reached at.
    found.dedup_by_key(|step| step.quota);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn small(quota: u64, spare: u64) -> Control {
        Control { period: quota + spare, quota }
    }

    fn all(control: Control, points: &[(u64, u64)]) -> Vec<u128> {
        let mut found = Vec::new();
        for &(value, own) in points {
            for phase in 0..control.period() {
                for _ in 0..own {
                    found.push(duration_from(control, value, phase));
                }
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn points_are_joined_and_refused() {
        let cpu = CpuTime::new(&[(5, 2), (3, 1), (5, 1), (9, 0)]).unwrap();
        assert_eq!(cpu.points(), [(3, 1), (5, 3)]);
        assert_eq!(cpu.mean(), (18, 4));
        assert_eq!(cpu.quantile(1, 4), Ok(3));
        assert_eq!(cpu.quantile(26, 100), Ok(5));
        assert_eq!(CpuTime::new(&[(5, 0)]), Err(ExpectedError::NoCpuTime));
        assert_eq!(CpuTime::new(&[(5, u64::MAX), (6, 1)]), Err(ExpectedError::Weights));
    }

    #[test]
    fn what_has_no_answer_is_told() {
        let control = Control::new(20 * MS, MS).unwrap();
        let cpu = CpuTime::new(&[(5 * MS, 1)]).unwrap();
        let late = mean(control, &cpu, Phase::At(20 * MS));
        assert_eq!(late, Err(ExpectedError::Phase { phase: 20 * MS, period: 20 * MS }));
        assert!(quantile(control, &cpu, Phase::Random, 3, 2).is_err());
        let long = CpuTime::new(&[(u64::MAX, u64::MAX)]).unwrap();
        let slow = Control::new(1000 * MS, 1).unwrap();
        assert_eq!(mean(slow, &long, Phase::Random), Err(ExpectedError::Sum));
    }

    #[test]
    fn the_jumps_of_the_published_function_are_near_1400_mb_over_n() {
        // 15.8 ms in the function at full speed, 1769 MB a vCPU: 1398, 699, 466, 350, 280 MB. The
        // cost paper reads 1400, 700, 470, 350 and 280 off its Figure 10.
        let found = steps(20 * MS, 15_800_000, (MS, 20 * MS), 5).unwrap();
        let sizes: Vec<_> =
            found.iter().map(|step| (step.quota * 1769).div_ceil(20 * MS)).collect();
        assert_eq!(sizes, [1398, 699, 466, 350, 280]);
    }

    #[test]
    fn no_jump_needs_a_quota_above_the_period() {
        let found = steps(20 * MS, 51_800_000, (10 * MS, 50 * MS), 100).unwrap();
        assert_eq!(found.iter().map(|step| step.periods).collect::<Vec<_>>(), [3, 4, 5]);
        assert!(steps(20 * MS, 0, (1, 20 * MS), 9).unwrap().is_empty());
        assert!(steps(MS / 2, 51_800_000, (1, MS), 9).is_err());
    }

    proptest! {
        #[test]
        fn means_and_quantiles_are_those_of_all_cases(
            quota in 1_u64..=9, spare in 0_u64..=9,
            points in prop::collection::vec((0_u64..=60, 1_u64..=3), 1..4), share in 0_u64..=20,
        ) {
            let control = small(quota, spare);
            let cpu = CpuTime::new(&points).unwrap();
            let cases = all(control, &points);
            let (sum, number) = mean(control, &cpu, Phase::Random).unwrap();
            prop_assert_eq!(sum, cases.iter().sum::<u128>());
            prop_assert_eq!(number, cases.len() as u128);
            let found = quantile(control, &cpu, Phase::Random, share, 20).unwrap();
            let rank = (cases.len() * usize::try_from(share).unwrap()).div_ceil(20).max(1);
            prop_assert_eq!(found, cases[rank - 1]);
        }

        #[test]
        fn one_phase_is_ordered_as_the_cpu_times(
            quota in 1_u64..=9, spare in 0_u64..=9, phase in 0_u64..18,
            points in prop::collection::vec((0_u64..=60, 1_u64..=3), 1..4), share in 1_u64..=20,
        ) {
            let control = small(quota, spare);
            let phase = phase % control.period();
            let cpu = CpuTime::new(&points).unwrap();
            let mut cases: Vec<u128> = Vec::new();
            for &(value, own) in &points {
                let taken = duration_from(control, value, phase);
                cases.extend((0..own).map(|_| taken));
            }
            cases.sort_unstable();
            let (sum, number) = mean(control, &cpu, Phase::At(phase)).unwrap();
            prop_assert_eq!((sum, number), (cases.iter().sum::<u128>(), cases.len() as u128));
            let rank = (cases.len() * usize::try_from(share).unwrap()).div_ceil(20);
            let found = quantile(control, &cpu, Phase::At(phase), share, 20).unwrap();
            prop_assert_eq!(found, cases[rank - 1]);
        }

        #[test]
        fn phases_are_counted(
            quota in 1_u64..=12, spare in 0_u64..=12, need in 0_u64..=80, bound in 0_u64..=400,
        ) {
            let control = small(quota, spare);
            let bound = u128::from(bound);
            let expected = (0..control.period())
                .filter(|&phase| duration_from(control, need, phase) <= bound)
                .count();
            prop_assert_eq!(within(control, need, bound), expected as u128);
        }

        #[test]
        fn a_jump_is_the_rest_of_a_period_and_random_phases_flatten_it(
            need in MS..=200 * MS, period in 2 * MS..=100 * MS,
        ) {
            for step in steps(period, need, (MS, period), 50).unwrap() {
                let spare = u128::from(period - step.quota);
                // Exactly P - Q if the quota is T / n; rounding it up to a ns moves every run.
                let fall = step.below.saturating_sub(step.at);
                prop_assert!(fall.abs_diff(spare) <= u128::from(2 * step.periods) + 2);
                let mean_fall = step.mean_below.saturating_sub(step.mean_at);
                let formula = spare * spare / if step.periods == 1 { 2 } else { 1 };
                // In sums over the phases: the slope of a ns of quota and rounding, n of them.
                let ns = u128::from(period) * (u128::from(step.periods) + 2) * 4;
                let slope = u128::from(need) * u128::from(period) / u128::from(step.quota) * 4;
                prop_assert!(mean_fall.abs_diff(formula) <= ns + slope, "{step:?}");
            }
        }

        #[test]
        fn a_random_phase_is_worth_a_throttle_on_average(
            quota in 1_u64..=12, spare in 1_u64..=12, quotas in 1_u64..=6,
        ) {
            // Over a whole quota of consecutive CPU times, all longer than one quota, a task takes
            // P - Q less than the reciprocal T P / Q says, give or take the rounding to integers.
            let control = small(quota, spare);
            let (first, last) = (quotas * quota + 1, (quotas + 1) * quota);
            let points: Vec<_> = (first..=last).map(|need| (need, 1)).collect();
            let cpu = CpuTime::new(&points).unwrap();
            let (sum, number) = mean(control, &cpu, Phase::Random).unwrap();
            let needs: u64 = (first..=last).sum();
            let period = quota + spare;
            let reciprocal = needs as f64 * period as f64 / (quota * quota) as f64;
            let gift = reciprocal - sum as f64 / number as f64;
            prop_assert!((gift - spare as f64).abs() <= 1.5 * spare as f64 / quota as f64 + 1e-9);
        }
    }
}
