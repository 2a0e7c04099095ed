//! The first worker with room while the load is low, so that functions find warm instances and workers
//! stay empty; the one with the fewest requests when it is high.
//!
//! The load is high when CPU reserved for what serves is `high_load` percent of the workers' CPUs, or more.
//!
//! Kaffes, Yadwadkar and Kozyrakis, *Hermod: Principled and Practical Scheduling for Serverless
//! Functions*, SoCC 2022.

use super::Placement;
use super::first_fit::FirstFit;
use super::least_loaded::LeastLoaded;
use crate::{FunctionView, Random, View, WorkerId};

/// Packs, then spreads.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hermod;

/// Makes the policy.
pub fn policy() -> Box<dyn Placement> {
    Box::new(Hermod)
}

impl Placement for Hermod {
    fn place(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<WorkerId> {
        let (mut reserved, mut capacity) = (0, 0);
        for worker in view.workers() {
            reserved += u128::from(worker.reserved().cpu);
            capacity += u128::from(worker.capacity().resources.cpu);
        }
        if reserved * 100 >= capacity * u128::from(view.parameters().high_load) {
            LeastLoaded.place(view, random, function)
        } else {
            FirstFit.place(view, random, function)
        }
    }
}
