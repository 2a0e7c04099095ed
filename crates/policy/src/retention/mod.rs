//! How long an idle instance is kept, and what it may do meanwhile: one file per policy.

use crate::{FunctionId, FunctionView, Hint, HintAnswer, InstanceView, Nanos, Pause, Random, View};

include!(concat!(env!("OUT_DIR"), "/retention.rs"));

/// What becomes of an instance that stays idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// When and how it is paused; never, if it is removed by then.
    pub pause: Option<(Nanos, Pause)>,
    /// When it is removed.
    pub stop_at: Nanos,
}

/// Instances that are to be started ahead of their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Of which function.
    pub function: FunctionId,
    /// How many.
    pub count: u32,
    /// Whether that is on the account of hints: then nobody makes room for them, and they make room for
    /// everybody.
    pub on_hint: bool,
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

    /// Whether it starts instances ahead of their requests; the methods below are not asked otherwise.
    fn prewarms(&self) -> bool {
        false
    }

    /// Takes note of a request that has arrived and is in flight only after this.
    fn on_arrival(&mut self, view: View<'_>, function: &FunctionView<'_>) {
        let _ = (view, function);
    }

    /// When [`Self::prewarm`] is to be asked next; None as long as nothing is planned.
    fn next_prewarm(&self) -> Option<Nanos> {
        None
    }

    /// Adds what is to be started now, which is planned no longer.
    fn prewarm(&mut self, view: View<'_>, out: &mut Vec<Ahead>) {
        let _ = (view, out);
    }

    /// Whether it reads hints; the methods below are not asked otherwise.
    fn reads_hints(&self) -> bool {
        false
    }

    /// Takes note of what a request of the function says of those to come.
    fn on_hint(&mut self, view: View<'_>, function: &FunctionView<'_>, hint: Hint) -> HintAnswer {
        let _ = (view, function, hint);
        HintAnswer::NotRead
    }

    /// Until when an idle instance stays on the account of hints, whose time is over; None if it does not. It is
    /// asked again then. Of one that was started for a hint it is asked when that is ready.
    fn hold(&mut self, view: View<'_>, instance: &InstanceView<'_>) -> Option<Nanos> {
        let _ = (view, instance);
        None
    }

    /// Forgets a function.
    fn on_deleted(&mut self, function: FunctionId) {
        let _ = function;
    }
}

/// When and how the instance is paused by its function's settings.
fn pause(instance: &InstanceView<'_>) -> Option<(Nanos, Pause)> {
    let function = instance.function();
    let settings = function.settings();
    settings.pause.map(|how| (instance.since().saturating_add(settings.pause_after), how))
}
