//! CPU bandwidth: a quota in a period, and the bounds that the kernel sets.

use crate::Error;

/// Nanoseconds.
pub type Nanos = u64;

/// Shortest period that the kernel takes: 1 ms (`min_cfs_quota_period`, kernel/sched/core.c).
pub const MIN_PERIOD: Nanos = 1_000_000;

/// Longest period that the kernel takes: 1 s (`max_cfs_quota_period`, kernel/sched/core.c).
pub const MAX_PERIOD: Nanos = 1_000_000_000;

/// Smallest quota that the kernel takes: 1 ms, the same bound as the period's.
pub const MIN_QUOTA: Nanos = 1_000_000;

/// Micro-vCPU in a vCPU.
pub const MICRO_PER_VCPU: u64 = 1_000_000;

pub(crate) const NS_PER_US: u64 = 1_000;

/// A quota in a period, and how much of it may be saved up for later.
///
/// The kernel takes whole microseconds. A quota above the period is more than one vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// After which the quota is there again.
    pub period: Nanos,
    /// CPU time that may be used in a period.
    pub quota: Nanos,
    /// `cpu.cfs_burst_us`, `cpu.max.burst`: since Linux 5.14.
    pub burst: Nanos,
}

impl Bandwidth {
    /// Checks what the kernel would refuse without a reason.
    ///
    /// # Errors
    /// The period or the quota is out of the kernel's bounds, the burst above the quota, or one of
    /// them is no whole number of microseconds.
    pub fn check(&self) -> Result<(), Error> {
        let us = |ns: Nanos| ns / NS_PER_US;
        if let Some(ns) =
            [self.period, self.quota, self.burst].into_iter().find(|ns| ns % NS_PER_US != 0)
        {
            return Err(Error::Fraction(ns));
        }
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.period) {
            return Err(Error::Period(us(self.period)));
        }
        if self.quota < MIN_QUOTA {
            return Err(Error::Quota(us(self.quota)));
        }
        if self.burst > self.quota {
            return Err(Error::Burst { burst_us: us(self.burst), quota_us: us(self.quota) });
        }
        Ok(())
    }

    /// CPU of one vCPU, in micro-vCPU.
    #[must_use]
    pub fn micro_vcpu(&self) -> u64 {
        let share = u128::from(self.quota) * u128::from(MICRO_PER_VCPU) / u128::from(self.period);
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn bandwidth() -> Bandwidth {
        Bandwidth { period: 20 * MS, quota: 1_450_000, burst: 0 }
    }

    #[test]
    fn what_the_kernel_refuses_is_refused_with_what_to_do() {
        let refusal = |changed: Bandwidth| changed.check().unwrap_err().to_string();
        assert!(bandwidth().check().is_ok());
        assert!(refusal(Bandwidth { period: 999_000, ..bandwidth() }).contains("1 ms to 1 s"));
        assert!(refusal(Bandwidth { period: 1_001 * MS, ..bandwidth() }).contains("1 ms to 1 s"));
        assert!(refusal(Bandwidth { quota: 999_000, ..bandwidth() }).contains("raise the quota"));
        assert!(refusal(Bandwidth { burst: 2 * MS, ..bandwidth() }).contains("lower the burst"));
        assert!(refusal(Bandwidth { quota: 1_450_001, ..bandwidth() }).contains("round it"));
    }

    #[test]
    fn a_quota_may_be_several_vcpus() {
        let two = Bandwidth { quota: 40 * MS, ..bandwidth() };
        assert!(two.check().is_ok());
        assert_eq!((two.micro_vcpu(), bandwidth().micro_vcpu()), (2_000_000, 72_500));
    }
}
