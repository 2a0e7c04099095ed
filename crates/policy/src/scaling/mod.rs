//! How many instances to start, and to stop: one file per policy.

use crate::{FunctionId, FunctionView, Nanos, Parameters, Random, View};

include!(concat!(env!("OUT_DIR"), "/scaling.rs"));

/// How the number of a function's instances is to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// So many more are started, as far as it may have them and there is room.
    Start(u32),
    /// So many are stopped, as far as they are idle and need not be kept: the least recently used first.
    Stop(u32),
}

/// Decides how many more instances of a function to start, and how many to stop.
///
/// The scheduler starts no more than the function's `max_instances`, nor than there is room for; what
/// is missing then is asked for again when there may be.
pub trait Scaling: Send {
    /// Whether it may start instances of a function that has those it is to have ready and of which no
    /// admitted request waits; [`Self::starts`] is not asked about such a function otherwise.
    fn starts_ahead(&self) -> bool {
        true
    }

    /// How many to start beside those that are starting; asked when a request arrives or ends, when
    /// an instance is gone, and when the settings change. More than there are waiting requests is
    /// possible.
    fn starts(&mut self, view: View<'_>, random: &mut Random, function: &FunctionView<'_>) -> u32;

    /// How often [`Self::on_tick`] is asked; None for never.
    fn tick_every(&self, parameters: &Parameters) -> Option<Nanos> {
        let _ = parameters;
        None
    }

    /// Adds the functions of which instances are to be started or stopped, and how many of each.
    fn on_tick(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        out: &mut Vec<(FunctionId, Change)>,
    ) {
        let _ = (view, random, out);
    }
}

/// Instances that are missing of those that the function is to have ready.
fn missing_ready(function: &FunctionView<'_>) -> u32 {
    function.settings().min_instances.saturating_sub(function.instances())
}
