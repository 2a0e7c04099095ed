//! Which instance serves a request: one file per policy.

use crate::{FunctionView, InstanceId, Random, View};

include!(concat!(env!("OUT_DIR"), "/reuse.rs"));

/// Decides which of a function's available instances serves the next request.
pub trait Reuse: Send {
    /// Whether it reads what instances use by their samples.
    fn reads_samples(&self) -> bool {
        false
    }

    /// One of [`FunctionView::available`], which are not none; None lets the request wait for a new
    /// instance, or for a better moment.
    fn choose(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<InstanceId>;
}
