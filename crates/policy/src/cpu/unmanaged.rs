//! Every instance runs on any CPU, as the driver started it.

use super::{Cpu, CpuEvent};
use crate::{CpuAssignment, InstanceId, InstanceView, Random, View};

/// Assigns nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unmanaged;

/// Makes the policy.
pub fn policy() -> Box<dyn Cpu> {
    Box::new(Unmanaged)
}

impl Cpu for Unmanaged {
    fn assigns(&self) -> bool {
        false
    }

    fn assign(
        &mut self,
        _: View<'_>,
        _: &mut Random,
        _: &InstanceView<'_>,
        _: CpuEvent,
        _: &mut Vec<(InstanceId, CpuAssignment)>,
    ) {
    }
}
