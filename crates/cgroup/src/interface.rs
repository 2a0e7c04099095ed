//! What the two versions do differently, behind one trait.

use std::ops::RangeInclusive;
use std::path::Path;

use crate::v1::V1;
use crate::v2::V2;
use crate::{Cpu, Error};

/// The version of the kernel's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A tree for each controller.
    V1,
    /// One tree for all.
    V2,
}

impl Version {
    pub(crate) fn interface(self) -> &'static dyn Interface {
        match self {
            Self::V1 => &V1,
            Self::V2 => &V2,
        }
    }
}

/// What the two versions do differently to one group. Folders are those of the controller that
/// the method is about.
pub(crate) trait Interface: std::fmt::Debug + Send + Sync {
    /// The file to which a process writes "0" to join a group.
    fn join_file(&self) -> &'static str;
    /// The file whose absence means that the kernel has no bandwidth control.
    fn quota_file(&self) -> &'static str;
    /// The file of the burst, which Linux has since 5.14.
    fn burst_file(&self) -> &'static str;
    fn write_quota(&self, folder: &Path, quota_us: u64, period_us: u64) -> Result<(), Error>;
    fn write_no_quota(&self, folder: &Path) -> Result<(), Error>;
    /// The quota and period of a group in us; `None` if it has no quota.
    fn quota(&self, folder: &Path) -> Option<(u64, u64)>;
    /// The file of a group's weight among others, and the weights that it takes.
    fn weights(&self) -> (&'static str, RangeInclusive<u64>);
    /// The weight that a group has at first.
    fn default_weight(&self) -> u64;
    /// Lets groups below this one have these controllers.
    fn pass_on(&self, folder: &Path, controllers: &[Controller]) -> Result<(), Error>;
    /// Limits all memory of a group, that of the kernel and of its sockets included, without
    /// swap.
    fn write_memory_limit(&self, folder: &Path, bytes: u64) -> Result<(), Error>;
    /// Has the kernel give up memory of a group that it can have again, from files or from swap. As
    /// much as that is: nothing left to give up is no error. Asks before each piece whether it goes on.
    fn reclaim(&self, folder: &Path, goes_on: &dyn Fn() -> bool) -> Result<(), Error>;
    /// The freezer's file, and what to write to it to stop a group or to let it run.
    fn freezer(&self, frozen: bool) -> (&'static str, &'static str);
    /// Whether every process of the group has stopped.
    fn is_frozen(&self, folder: &Path) -> Result<bool, Error>;
    fn counter_files(&self) -> &'static CounterFiles;
    /// CPU time from the text of [`CounterFiles::cpu`].
    fn parse_cpu(&self, text: &str) -> Option<Cpu>;
}

/// The names of a version's counters.
#[derive(Debug)]
pub(crate) struct CounterFiles {
    /// CPU time.
    pub cpu: &'static str,
    /// Where user and system time are listed by CPU, if not in `cpu`.
    pub cpu_split: Option<&'static str>,
    /// Throttling, if not in `cpu`.
    pub stat: Option<&'static str>,
    pub memory: &'static str,
    pub peak: &'static str,
    pub oom: &'static str,
    /// Identifiers of the threads in the group.
    pub threads: &'static str,
}

/// A controller, as far as Uncia uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// CPU quotas.
    Cpu,
    /// CPU time used.
    CpuAccounting,
    /// Memory, used and limited.
    Memory,
    /// The number of processes and threads.
    Pids,
    /// Stopping all processes of a group where they are.
    Freezer,
    /// Which CPUs a group may run on.
    CpuSet,
}

impl Controller {
    /// All that every worker uses; [`Self::CpuSet`] is for those that pin.
    pub const ALL: [Self; 5] =
        [Self::Cpu, Self::CpuAccounting, Self::Memory, Self::Pids, Self::Freezer];

    /// The name in version 1's lists of controllers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::CpuAccounting => "cpuacct",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
            Self::CpuSet => "cpuset",
        }
    }

    /// Whether every group of version 2 has it; the others must be switched on.
    #[must_use]
    pub fn is_always_in_v2(self) -> bool {
        matches!(self, Self::CpuAccounting | Self::Freezer)
    }
}
