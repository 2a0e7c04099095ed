//! Which CPUs an instance runs on, and in which class: one file per policy.

use crate::{CpuAssignment, InstanceId, InstanceView, Random, View};

include!(concat!(env!("OUT_DIR"), "/cpu.rs"));

/// Why CPUs may be assigned anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CpuEvent {
    /// The instance begins to serve; it is asked for before the request is assigned.
    Active,
    /// The instance serves nothing any more.
    Idle,
    /// Its use was sampled.
    Sampled,
    /// It is being stopped, or gone if that came first; what it had is free.
    Gone,
}

/// Decides what instances run on.
pub trait Cpu: Send {
    /// Whether it ever assigns anything; [`Self::assign`] is not called otherwise.
    fn assigns(&self) -> bool {
        true
    }

    /// Adds the instances whose assignment changes because of what happened to this one.
    fn assign(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        instance: &InstanceView<'_>,
        event: CpuEvent,
        out: &mut Vec<(InstanceId, CpuAssignment)>,
    );
}
