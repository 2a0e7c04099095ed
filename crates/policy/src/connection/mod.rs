//! What a client's connection begins, before its request is read: one file per policy.

use crate::{FunctionView, Random, View};

include!(concat!(env!("OUT_DIR"), "/connection.rs"));

/// Decides how many instances to start when a client connects to a function's own address.
///
/// The scheduler starts no more than the function's `max_instances`, nor than there is room for.
/// Simulated requests come without connections.
pub trait Connection: Send {
    /// Whether connections start anything: they need not be reported otherwise.
    fn reads_connections(&self) -> bool {
        true
    }

    /// How many to start, the connection being one of those that have not asked yet.
    fn starts(&mut self, view: View<'_>, random: &mut Random, function: &FunctionView<'_>) -> u32;
}
