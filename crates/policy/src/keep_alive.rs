use crate::{FunctionSettings, Nanos};

/// What becomes of an instance that stays idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// When it is frozen; never, if it is removed by then.
    pub freeze_at: Nanos,
    /// When it is removed.
    pub stop_at: Nanos,
}

/// Decides how long an instance is kept once it is idle, and when it is frozen meanwhile.
pub trait Retention: Send {
    fn schedule(&self, idle_since: Nanos, settings: &FunctionSettings) -> Schedule;
}

/// Every instance is kept for the same time after each use, and frozen after a grace time:
/// `freeze_at = idle_since + pause_after`, `stop_at = idle_since + keep_alive`.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedKeepAlive;

impl Retention for FixedKeepAlive {
    fn schedule(&self, idle_since: Nanos, settings: &FunctionSettings) -> Schedule {
        Schedule {
            freeze_at: idle_since.saturating_add(settings.pause_after),
            stop_at: idle_since.saturating_add(settings.keep_alive),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_from_the_last_use_without_overflow() {
        let settings =
            FunctionSettings { keep_alive: 300, pause_after: Nanos::MAX, max_instances: 1 };
        let schedule = FixedKeepAlive.schedule(7, &settings);
        assert_eq!(schedule, Schedule { freeze_at: Nanos::MAX, stop_at: 307 });
    }
}
