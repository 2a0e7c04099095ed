//! How many instances to start: one file per policy.

use crate::{FunctionId, FunctionView, Nanos, Random, View};

include!(concat!(env!("OUT_DIR"), "/scaling.rs"));

/// Decides how many more instances of a function to start.
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
    fn tick_every(&self) -> Option<Nanos> {
        None
    }

    /// Adds the functions of which instances are to be started, and how many of each.
    fn on_tick(&mut self, view: View<'_>, random: &mut Random, out: &mut Vec<(FunctionId, u32)>) {
        let _ = (view, random, out);
    }
}
