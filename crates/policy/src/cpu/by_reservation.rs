//! An instance that has reserved CPU is of the class reserved, with that as its weight, any other of the
//! class spot. What is reserved in whole cores are cores of its own while it serves: others that run on
//! them borrow. One that has no spot CPU runs on them alone, as it may use no more: wherever else it ran,
//! it would borrow what it has. Its weight there is what it reserves, as anywhere else; where its cores are
//! none of its own alone, it runs on any.

use super::{Cpu, CpuEvent};
use crate::cores::{Cores, Taken};
use crate::{CpuAssignment, CpuClass, InstanceId, InstanceView, Random, View};

/// Assigns a class to each instance.
#[derive(Debug, Default)]
pub struct ByReservation {
    cores: Cores,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Cpu> {
    Box::new(ByReservation::default())
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
        match event {
            CpuEvent::Active => {
                let (weight, allocated) = (instance.reservation().cpu, instance.allocation().cpu);
                let taken = self.cores.take(instance).filter(|taken| taken.are_whole);
                if let Some(Taken { cpus, .. }) = taken
                    && weight == allocated
                {
                    let weight = Some(weight);
                    let assignment = CpuAssignment::Cpus { cpus, are_own: true, weight };
                    out.push((instance.id(), assignment));
                    return;
                }
                let cpus = taken.map(|taken| taken.cpus).unwrap_or_default();
                // Its cores may be others each time; without a reservation the first assignment holds.
                if instance.served() == 0 || weight > 0 {
                    let class = if weight > 0 { CpuClass::Reserved } else { CpuClass::Spot };
                    out.push((instance.id(), CpuAssignment::Class { class, weight, own: cpus }));
                }
            }
            CpuEvent::Idle | CpuEvent::Gone => self.cores.give_back(instance.id()),
            CpuEvent::Sampled => {}
        }
    }
}
