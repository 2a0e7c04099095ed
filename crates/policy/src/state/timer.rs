//! The timer of an instance.

use crate::Nanos;
use crate::state::Instance;
use crate::state::slots::Slots;

/// No time.
pub(crate) const NEVER: Nanos = Nanos::MAX;

/// When something is due for an instance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timer {
    /// When it is due, or never.
    pub(crate) due: Nanos,
    /// The time of its entry among all timers, which is not later, or never if it has none.
    pub(crate) entry: Nanos,
}

impl Default for Timer {
    /// One that is not set.
    fn default() -> Self {
        Self { due: NEVER, entry: NEVER }
    }
}

/// Timers by slot.
pub(crate) trait TimerOf {
    /// The timer of a slot, which is not set if the slot is free.
    fn timer(&mut self, slot: usize) -> &mut Timer;
}

impl TimerOf for Slots<Instance> {
    fn timer(&mut self, slot: usize) -> &mut Timer {
        &mut self[slot].timer
    }
}
