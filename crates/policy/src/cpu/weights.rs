//! Every instance runs on any CPU, with a weight in proportion to what is reserved for it.

use super::{Cpu, CpuEvent};
use crate::{CpuAssignment, InstanceId, InstanceView, Random, View};

/// Assigns a weight to each instance, with its first request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weights;

/// Makes the policy.
pub fn policy() -> Box<dyn Cpu> {
    Box::new(Weights)
}

impl Cpu for Weights {
    fn assign(
        &mut self,
        _: View<'_>,
        _: &mut Random,
        instance: &InstanceView<'_>,
        event: CpuEvent,
        out: &mut Vec<(InstanceId, CpuAssignment)>,
    ) {
        if event == CpuEvent::Active && instance.served() == 0 {
            out.push((instance.id(), CpuAssignment::Weight(instance.reservation().cpu)));
        }
    }
}
