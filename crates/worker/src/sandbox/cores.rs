//! The CPUs of a host where a policy divides them between instances.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use uncia_policy::{CpuAssignment, CpuClass, CpuSet};

use super::cgroup::{CgroupError, Controller, Group, PerCpu, Version};
use super::live::Instance;
use super::meter::{ByCpu, Reserved};

/// The CPUs of a host.
pub(super) struct HostCores {
    /// Those that this process may run on; the policies' numbers are positions in it.
    pub cpus: Vec<usize>,
    /// The version of control groups, and what all instances use on each CPU; None where the kernel does not
    /// count that.
    pub all: Option<(Version, Arc<PerCpu>)>,
}

impl HostCores {
    /// The account by CPU of an instance's group.
    pub(super) fn of(&self, group: &Group) -> Option<ByCpu> {
        let folder = group.folder(Controller::CpuAccounting)?.to_owned();
        Some(ByCpu::new(self.all.clone()?, folder, self.cpus.clone()))
    }

    /// The machine's numbers of these CPUs.
    fn numbers(&self, cpus: &CpuSet) -> Vec<usize> {
        cpus.iter().filter_map(|cpu| self.cpus.get(cpu).copied()).collect()
    }
}

impl Instance {
    /// Gives it a CPU class, a weight, or CPUs of its own, and notes what is its own for its account.
    pub fn set_cpu(&self, assignment: &CpuAssignment) -> io::Result<()> {
        let inner = self.inner();
        let (Some(cores), Some(group)) = (&inner.cores, &inner.group) else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this host cannot assign CPUs"));
        };
        inner.meter.reserve(reserved(cores, assignment));
        assign(cores, group, assignment).map_err(io::Error::other)?;
        let is_pinned = matches!(assignment, CpuAssignment::Cpus { .. });
        if inner.pinned.swap(is_pinned, Ordering::Relaxed) && !is_pinned {
            group.set_cpus(&cores.cpus).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

fn assign(cores: &HostCores, group: &Group, assignment: &CpuAssignment) -> Result<(), CgroupError> {
    match assignment {
        CpuAssignment::Class { class: CpuClass::Spot, .. } => group.set_idle(true),
        CpuAssignment::Class { class: CpuClass::Reserved, weight, .. }
        | CpuAssignment::Weight(weight) => group.set_weight(*weight),
        CpuAssignment::Cpus { cpus, weight, .. } => {
            weight.map_or(Ok(()), |weight| group.set_weight(weight))?;
            group.set_cpus(&cores.numbers(cpus))
        }
    }
}

/// What an assignment says of what is an instance's own.
fn reserved(cores: &HostCores, assignment: &CpuAssignment) -> Reserved {
    match assignment {
        CpuAssignment::Class { class: CpuClass::Spot, .. } | CpuAssignment::Weight(0) => {
            Reserved::Nothing
        }
        CpuAssignment::Class { own: cpus, .. }
        | CpuAssignment::Cpus { cpus, are_own: true, .. }
            if !cpus.is_empty() && cores.all.is_some() =>
        {
            Reserved::Cpus(cores.numbers(cpus))
        }
        _ => Reserved::Unknown,
    }
}
