//! On which worker an instance starts: one file per policy.

use crate::{FunctionView, Random, View, WorkerId};

include!(concat!(env!("OUT_DIR"), "/placement.rs"));

/// Decides on which worker an instance starts.
pub trait Placement: Send {
    /// Whether it reads what instances use by their samples.
    fn reads_samples(&self) -> bool {
        false
    }

    /// Whether it reads what is expected of workers.
    fn reads_expectations(&self) -> bool {
        false
    }

    /// The worker for one more instance of the function. Idle instances on it are evicted if it has
    /// no room otherwise. A policy that never lets more be allocated than there is names only
    /// workers that have room after eviction. None if there is no such worker now: the start waits.
    fn place(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<WorkerId>;
}
