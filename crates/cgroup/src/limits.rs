//! What an instance may use.

use std::ops::RangeInclusive;

use crate::Bandwidth;
use crate::bandwidth::{MAX_PERIOD, MICRO_PER_VCPU, MIN_PERIOD, MIN_QUOTA, NS_PER_US};

/// The periods that the kernel takes, in microseconds.
pub const PERIODS_US: RangeInclusive<u64> = MIN_PERIOD / NS_PER_US..=MAX_PERIOD / NS_PER_US;

/// What an instance keeps whose CPU is scaled down.
const SCALED_DOWN_MICRO: u64 = 10_000;

/// What an instance may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids_max: u64,
    /// CPU in millionths of a vCPU.
    pub cpu_micro: u64,
    /// The period that its quota is of.
    pub period_us: u64,
}

impl Limits {
    /// As `cpu_micro`: there is no quota.
    pub const NO_QUOTA: u64 = u64::MAX;

    /// The CPU time of each period, in ns.
    #[must_use]
    pub fn quota_ns(&self) -> u64 {
        let quota = u128::from(self.period_us) * u128::from(self.cpu_micro) / 1_000;
        u64::try_from(quota).unwrap_or(u64::MAX).max(1)
    }

    /// The period, in ns.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        self.period_us.saturating_mul(NS_PER_US)
    }

    /// The quota as the kernel takes it: whole microseconds, and 1 ms at least.
    #[must_use]
    pub fn bandwidth(&self) -> Bandwidth {
        let quota = self.quota_ns();
        let quota = (quota - quota % NS_PER_US).max(MIN_QUOTA);
        Bandwidth { period: self.period_ns(), quota, burst: 0 }
    }

    /// The limits in keep-alive with the CPU scaled down: 0.01 vCPU, or all if it has less. Its
    /// period is at least so long (100 ms, but for shares below 0.01) that the kernel's smallest
    /// quota is not more than that share.
    #[must_use]
    pub fn scaled_down(&self) -> Self {
        let cpu_micro = self.cpu_micro.clamp(1, SCALED_DOWN_MICRO);
        let long_enough = (MIN_QUOTA / NS_PER_US * MICRO_PER_VCPU).div_ceil(cpu_micro);
        let period_us = self.period_us.max(long_enough).min(*PERIODS_US.end());
        Self { cpu_micro, period_us, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits(cpu_micro: u64, period_us: u64) -> Limits {
        Limits { memory_bytes: 134_217_728, pids_max: 64, cpu_micro, period_us }
    }

    #[test]
    fn scaled_down_is_a_hundredth_that_the_kernel_takes() {
        let scaled = |cpu_micro, period_us| {
            let bandwidth = limits(cpu_micro, period_us).scaled_down().bandwidth();
            (bandwidth.quota / NS_PER_US, bandwidth.period / NS_PER_US)
        };
        assert_eq!(scaled(72_357, 20_000), (1_000, 100_000));
        assert_eq!(scaled(1_000_000, 500_000), (5_000, 500_000));
        assert_eq!(scaled(5_000, 20_000), (1_000, 200_000), "it gets no more than it had");
        assert_eq!(scaled(1, 20_000), (1_000, 1_000_000), "as little as the kernel can do");
    }

    proptest! {
        #[test]
        fn the_quota_is_the_share_of_the_period(
            cpu_micro in 1_u64..=16_000_000, period_us in 1_000_u64..=1_000_000,
        ) {
            let bandwidth = limits(cpu_micro, period_us).bandwidth();
            prop_assert!(bandwidth.check().is_ok());
            if bandwidth.quota > MIN_QUOTA {
                let (quota, exact) = (bandwidth.quota * 1_000, period_us * cpu_micro);
                prop_assert!(quota <= exact && exact - quota < 1_000_000);
            }
        }
    }
}
