//! How long an idle instance is kept, and what it may do meanwhile: one file per policy.

use crate::{InstanceView, Nanos, Pause, Random, View};

include!(concat!(env!("OUT_DIR"), "/retention.rs"));

/// What becomes of an instance that stays idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// When and how it is paused; never, if it is removed by then.
    pub pause: Option<(Nanos, Pause)>,
    /// When it is removed.
    pub stop_at: Nanos,
}

/// Decides how long an instance is kept once it is idle, and what it may do meanwhile.
pub trait Retention: Send {
    /// Asked when the instance becomes idle, which it is [`InstanceView::since`] then, and again if
    /// its function's settings change. One that its function keeps ready is paused, not removed.
    fn schedule(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        instance: &InstanceView<'_>,
    ) -> Schedule;
}
