use crate::{FunctionSettings, Nanos, Pause};

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
    fn schedule(&self, idle_since: Nanos, settings: &FunctionSettings) -> Schedule;
}

/// Every instance is kept for the same time after each use, and paused after a grace time, if its
/// function has it paused at all: at `idle_since + pause_after`, `stop_at = idle_since + keep_alive`.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedKeepAlive;

impl Retention for FixedKeepAlive {
    fn schedule(&self, idle_since: Nanos, settings: &FunctionSettings) -> Schedule {
        let pause_at = idle_since.saturating_add(settings.pause_after);
        Schedule {
            pause: settings.pause.map(|how| (pause_at, how)),
            stop_at: idle_since.saturating_add(settings.keep_alive),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> FunctionSettings {
        FunctionSettings {
            keep_alive: 300,
            pause_after: Nanos::MAX,
            pause: Some(Pause::Freeze),
            ..FunctionSettings::default()
        }
    }

    #[test]
    fn counted_from_the_last_use_without_overflow() {
        let schedule = FixedKeepAlive.schedule(7, &settings());
        let pause = Some((Nanos::MAX, Pause::Freeze));
        assert_eq!(schedule, Schedule { pause, stop_at: 307 });
    }

    #[test]
    fn paused_as_the_function_has_it() {
        let pause = |pause| {
            let settings = FunctionSettings { pause_after: 50, pause, ..settings() };
            FixedKeepAlive.schedule(7, &settings).pause
        };
        assert_eq!(pause(Some(Pause::ScaleDown)), Some((57, Pause::ScaleDown)));
        assert_eq!(pause(None), None);
    }
}
