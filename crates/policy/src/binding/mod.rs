//! Whether a request may leave the instance that is being started for it: one file per policy.

use crate::{FunctionView, Random, View};

include!(concat!(env!("OUT_DIR"), "/binding.rs"));

/// Decides whether a request for which an instance is being started may be served by another that
/// is free before.
pub trait Binding: Send {
    /// Whether it may, now that an instance of the function is free.
    fn is_late(&mut self, view: View<'_>, random: &mut Random, function: &FunctionView<'_>)
    -> bool;
}
