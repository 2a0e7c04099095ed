//! A period and a quota, as the kernel takes them.

use crate::{MAX_PERIOD, MICRO_PER_VCPU, MIN_PERIOD, Nanos};

/// How much CPU time a group may use in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Control {
    pub(crate) period: Nanos,
    pub(crate) quota: Nanos,
}

/// Why there is no such control.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum ControlError {
    #[error("a period of {0} ns is beyond what the kernel takes: 1 ms to 1 s")]
    Period(Nanos),
    #[error("a quota of 0 lets nothing run")]
    NoQuota,
    #[error(
        "a quota of {quota} ns in a period of {period} ns is above one vCPU, which a single thread \
         cannot use"
    )]
    AboveOneVcpu { quota: Nanos, period: Nanos },
}

impl Control {
    /// A control of one thread: the quota is at most the period.
    ///
    /// The quota may be below [`crate::MIN_QUOTA`], which the kernel refuses: providers are modelled too,
    /// and formulas are of use below it.
    ///
    /// # Errors
    /// The period is not within the kernel's bounds, or the quota is 0 or above the period.
    pub fn new(period: Nanos, quota: Nanos) -> Result<Self, ControlError> {
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&period) {
            return Err(ControlError::Period(period));
        }
        if quota == 0 {
            return Err(ControlError::NoQuota);
        }
        if quota > period {
            return Err(ControlError::AboveOneVcpu { quota, period });
        }
        Ok(Self { period, quota })
    }

    /// The control that gives a share of one vCPU, the quota rounded down to ns.
    ///
    /// # Errors
    /// As [`Control::new`].
    pub fn of_share(period: Nanos, micro_vcpu: u64) -> Result<Self, ControlError> {
        let quota = u128::from(period) * u128::from(micro_vcpu) / u128::from(MICRO_PER_VCPU);
        Self::new(period, u64::try_from(quota).unwrap_or(u64::MAX))
    }

    /// Length of a period.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.period
    }

    /// CPU time allowed in a period.
    #[must_use]
    pub fn quota(&self) -> Nanos {
        self.quota
    }

    /// Whether the group is never throttled.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.quota == self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_told() {
        assert_eq!(Control::new(999_999, 500_000), Err(ControlError::Period(999_999)));
        assert_eq!(Control::new(1_000_000_001, 1), Err(ControlError::Period(1_000_000_001)));
        assert_eq!(Control::new(20_000_000, 0), Err(ControlError::NoQuota));
        let above = Control::new(20_000_000, 20_000_001).unwrap_err();
        assert!(above.to_string().contains("above one vCPU"), "{above}");
    }

    #[test]
    fn a_share_becomes_a_quota() {
        // 128 MB of 1769 MB: the 1.447 ms in 20 ms of AWS Lambda's smallest size.
        let control = Control::of_share(20_000_000, 72_357).unwrap();
        assert_eq!(control.quota(), 1_447_140);
        assert!(Control::of_share(20_000_000, 1_000_000).unwrap().is_whole());
        assert!(Control::of_share(20_000_000, u64::MAX).is_err());
    }
}
