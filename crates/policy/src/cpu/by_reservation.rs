//! An instance that has reserved CPU is of the class reserved, any other of the class spot, from its
//! first request on.

use super::{Cpu, CpuEvent};
use crate::{CpuAssignment, CpuClass, InstanceId, InstanceView, Random, View};

/// Assigns a class to each instance.
#[derive(Debug, Clone, Copy, Default)]
pub struct ByReservation;

/// Makes the policy.
pub fn policy() -> Box<dyn Cpu> {
    Box::new(ByReservation)
}

impl Cpu for ByReservation {
    fn assign(
        &mut self,
        _: View<'_>,
        _: &mut Random,
        instance: &InstanceView<'_>,
        event: CpuEvent,
        out: &mut Vec<(InstanceId, CpuAssignment)>,
    ) {
        if event == CpuEvent::Active && instance.served() == 0 {
            let reserved = instance.reservation().cpu > 0;
            let class = if reserved { CpuClass::Reserved } else { CpuClass::Spot };
            out.push((instance.id(), CpuAssignment::Class(class)));
        }
    }
}
