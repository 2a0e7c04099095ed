//! Control groups of either version: one parent for the worker, one child for each instance.
//!
//! Version 1 has a tree for each controller, version 2 one tree for all. Both are a list of folders
//! here, and where the versions differ is in the names and forms of the files.

mod counters;
mod discover;
mod files;
mod group;

use std::io;
use std::path::PathBuf;

pub use counters::{Counters, Cpu, Running, Threads, Throttling};
pub use discover::{Layout, discover};
pub use group::{Group, Limits, PERIODS_US};
pub use uncia_cgroup::{Version, clear_tree, thaw_tree};

/// What the worker wants of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Cpu,
    CpuAccounting,
    Memory,
    Pids,
    Freezer,
}

impl Controller {
    pub const ALL: [Self; 5] =
        [Self::Cpu, Self::CpuAccounting, Self::Memory, Self::Pids, Self::Freezer];

    /// The name in version 1's lists of controllers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CpuAccounting => "cpuacct",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
        }
    }

    /// Version 2 counts CPU time and freezes in every group; the others must be switched on.
    pub fn always_in_v2(self) -> bool {
        matches!(self, Self::CpuAccounting | Self::Freezer)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    #[error("cannot make the control group {0}: {1}")]
    Make(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Files(#[from] uncia_cgroup::Error),
    #[error("the CPU period is {0} us, and the kernel takes 1000 to 1000000 us")]
    Period(u64),
    #[error("the control group {0} has processes that do not freeze")]
    Unfreezable(PathBuf),
    #[error(
        "event-driven enforcement needs a freezer and CPU accounting, which this worker may not use"
    )]
    NotEnforceable,
    #[error("the control group is being removed")]
    Ending,
    #[error("this machine has no freezer that the worker may use")]
    NoFreezer,
}
