//! Every instance runs on the cores that are reserved for it, and on no others, while it serves.
//!
//! Parts of a core that several have reserved are parts of the same core, as far as they fit. An instance
//! that reserves no CPU runs anywhere, on what is left: in the class spot.

use super::{Cpu, CpuEvent};
use crate::cores::{Cores, Taken};
use crate::{CpuAssignment, CpuClass, CpuSet, InstanceId, InstanceView, Random, View};

/// Pins instances to cores.
#[derive(Debug, Default)]
pub struct Pinned {
    cores: Cores,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Cpu> {
    Box::new(Pinned::default())
}

impl Cpu for Pinned {
    fn assign(
        &mut self,
        _: View<'_>,
        _: &mut Random,
        instance: &InstanceView<'_>,
        event: CpuEvent,
        out: &mut Vec<(InstanceId, CpuAssignment)>,
    ) {
        match event {
            CpuEvent::Active => {
                let taken = self.cores.take(instance);
                let assignment = match taken {
                    Some(Taken { cpus, are_whole: are_own }) => {
                        CpuAssignment::Cpus { cpus, are_own, weight: None }
                    }
                    None if instance.reservation().cpu > 0 => return,
                    None => CpuAssignment::Class {
                        class: CpuClass::Spot,
                        weight: 0,
                        own: CpuSet::default(),
                    },
                };
                out.push((instance.id(), assignment));
            }
            CpuEvent::Idle | CpuEvent::Gone => self.cores.give_back(instance.id()),
            CpuEvent::Sampled => {}
        }
    }
}
