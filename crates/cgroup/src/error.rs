//! Why something could not be done with control groups.

use std::io;
use std::path::PathBuf;

use crate::{Nanos, Obstacle};

/// Why something could not be done with a group. Each case says what to do, where that is known.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum Error {
    #[error("cannot write {value:?} to {path}: {source}")]
    Write { path: PathBuf, value: String, source: io::Error },
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    #[error("cannot make the control group {0}: {1}")]
    Make(PathBuf, #[source] io::Error),
    #[error("processes in the control group {0} do not end")]
    Alive(PathBuf),
    #[error("cannot remove the control group {0}: {1}; `uncia clean` tries again")]
    Remove(PathBuf, #[source] io::Error),
    #[error("the control group {0} has processes that do not freeze")]
    Unfreezable(PathBuf),
    #[error("this machine has no freezer that this process may use")]
    NoFreezer,
    #[error("the control group is being removed")]
    Ending,
    #[error(
        "event-driven enforcement needs a freezer and CPU accounting, which this worker may not use"
    )]
    NotEnforceable,
    #[error(
        "no control groups with the controller `{0}` are mounted here: mount them \
         (mount -t cgroup2 none /sys/fs/cgroup), or run outside of this container"
    )]
    NotMounted(&'static str),
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// Microseconds.
    #[error("the CPU period is {0} us, beyond what the kernel takes: choose one from 1 ms to 1 s")]
    Period(u64),
    /// Microseconds.
    #[error(
        "a quota of {0} us is below the 1000 us that the kernel takes at least (it says EINVAL): \
         raise the quota, or lengthen the period for the same share"
    )]
    Quota(u64),
    #[error(
        "a burst of {burst_us} us is above the quota of {quota_us} us, and the kernel saves up one \
         quota at most: lower the burst"
    )]
    Burst { burst_us: u64, quota_us: u64 },
    #[error("{0} ns is no whole number of microseconds, in which the kernel counts: round it")]
    Fraction(Nanos),
    #[error(
        "the quota, {quota_us} us in {period_us} us, is above that of the group {parent}, which has \
         {limit}: lower the quota, or run outside of that group"
    )]
    AboveParent { quota_us: u64, period_us: u64, parent: PathBuf, limit: String },
    #[error(
        "{0} is missing, so this kernel has no CPU bandwidth control (CONFIG_CFS_BANDWIDTH) here: \
         use another kernel, or run outside of this sandbox"
    )]
    NoBandwidthControl(PathBuf),
    #[error("{0} is missing, so this kernel knows no burst (Linux 5.14 does): leave the burst out")]
    NoBurst(PathBuf),
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}
