//! A control group of one's own with a CPU quota, of either version of the kernel's interface.
//!
//! Version 1 has a tree for each controller (`cpu` and `cpuacct` are meant here), version 2 one tree
//! for all. A group is made, given a quota, read and removed; dropping it removes it.

mod counters;
mod group;
mod place;

use std::io;
use std::path::PathBuf;

pub use counters::{Counters, Reading};
pub use group::{Group, Leftover, leftovers, sweep};
pub use place::Place;
pub use uncia_cgroup::{Throttling, Version};

use crate::{MAX_PERIOD, MIN_PERIOD, MIN_QUOTA, Nanos};

const NS_PER_US: u64 = 1_000;

/// A quota in a period, and how much of it may be saved up for later.
///
/// Unlike [`crate::Control`], these are what the kernel takes: whole microseconds, and a quota above
/// the period is more than one vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    pub period: Nanos,
    pub quota: Nanos,
    /// `cpu.cfs_burst_us`, `cpu.max.burst`: since Linux 5.14.
    pub burst: Nanos,
}

impl Bandwidth {
    /// What the kernel would refuse, refused with its reason.
    ///
    /// # Errors
    /// The period or the quota is out of the kernel's bounds, the burst above the quota, or one of
    /// them is no whole number of microseconds.
    pub fn check(&self) -> Result<(), CgroupError> {
        if !(MIN_PERIOD..=MAX_PERIOD).contains(&self.period) {
            return Err(CgroupError::Period(self.period));
        }
        if self.quota < MIN_QUOTA {
            return Err(CgroupError::Quota(self.quota));
        }
        if self.burst > self.quota {
            return Err(CgroupError::Burst { burst: self.burst, quota: self.quota });
        }
        match [self.period, self.quota, self.burst].into_iter().find(|ns| ns % NS_PER_US != 0) {
            Some(ns) => Err(CgroupError::Fraction(ns)),
            None => Ok(()),
        }
    }

    /// CPU of one vCPU, in micro-vCPU.
    #[must_use]
    pub fn micro_vcpu(&self) -> u64 {
        let share =
            u128::from(self.quota) * u128::from(crate::MICRO_PER_VCPU) / u128::from(self.period);
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// Why there is no such group. Each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error(
        "a period of {} us is beyond what the kernel takes: choose one from 1 ms to 1 s",
        .0 / NS_PER_US
    )]
    Period(Nanos),
    #[error(
        "a quota of {} us is below the 1000 us that the kernel takes at least (it says EINVAL): \
         raise the quota, or lengthen the period for the same share",
        .0 / NS_PER_US
    )]
    Quota(Nanos),
    #[error(
        "a burst of {} us is above the quota of {} us, and the kernel saves up one quota at most: \
         lower the burst",
        burst / NS_PER_US, quota / NS_PER_US
    )]
    Burst { burst: Nanos, quota: Nanos },
    #[error("{0} ns is no whole number of microseconds, in which the kernel counts: round it")]
    Fraction(Nanos),
    #[error(
        "the quota, {quota_us} us in {period_us} us, is above that of the group {parent}, which has \
         {limit}: lower the quota, or run outside of that group"
    )]
    AboveParent { quota_us: u64, period_us: u64, parent: PathBuf, limit: String },
    #[error(
        "no control groups with the controller `cpu` are mounted here: mount them \
         (mount -t cgroup2 none /sys/fs/cgroup), or run outside of this container"
    )]
    None,
    #[error(
        "{0} may not be written, and no group above it: run as root, or in a container with \
         /sys/fs/cgroup writable, or by `systemd-run --user --scope`"
    )]
    NotWritable(PathBuf),
    #[error(
        "the controller `cpu` is not delegated to {0} or a group above it: run by \
         `systemd-run --user --scope -p Delegate=yes`, or have root write +cpu to the file \
         cgroup.subtree_control of the group above"
    )]
    NotDelegated(PathBuf),
    #[error(
        "{0} has processes of its own, so groups below it get no controller: move them into a group \
         below it (mkdir {0}/rest, then write each number in {0}/cgroup.procs to \
         {0}/rest/cgroup.procs), or run by `systemd-run --user --scope -p Delegate=yes`"
    )]
    Occupied(PathBuf),
    #[error(
        "{0} is missing, so this kernel has no CPU bandwidth control (CONFIG_CFS_BANDWIDTH) here: \
         use another kernel, or run outside of this sandbox"
    )]
    NoBandwidthControl(PathBuf),
    #[error("{0} is missing, so this kernel knows no burst (Linux 5.14 does): leave the burst out")]
    NoBurst(PathBuf),
    #[error("cannot make the control group {0}: {1}")]
    Make(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Files(#[from] uncia_cgroup::Error),
    #[error("{0}; `uncia clean` tries again")]
    Left(#[source] uncia_cgroup::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    fn bandwidth() -> Bandwidth {
        Bandwidth { period: 20 * MS, quota: 1_450_000, burst: 0 }
    }

    #[test]
    fn what_the_kernel_refuses_is_told_with_what_to_do() {
        let told = |changed: Bandwidth| changed.check().unwrap_err().to_string();
        assert!(bandwidth().check().is_ok());
        assert!(told(Bandwidth { period: 999_000, ..bandwidth() }).contains("1 ms to 1 s"));
        assert!(told(Bandwidth { period: 1_000 * MS + 1, ..bandwidth() }).contains("1 ms to 1 s"));
        assert!(told(Bandwidth { quota: 999_000, ..bandwidth() }).contains("raise the quota"));
        assert!(told(Bandwidth { burst: 2 * MS, ..bandwidth() }).contains("lower the burst"));
        assert!(told(Bandwidth { quota: 1_450_001, ..bandwidth() }).contains("round it"));
    }

    #[test]
    fn a_quota_may_be_several_vcpus() {
        let two = Bandwidth { quota: 40 * MS, ..bandwidth() };
        assert!(two.check().is_ok());
        assert_eq!((two.micro_vcpu(), bandwidth().micro_vcpu()), (2_000_000, 72_500));
    }
}
