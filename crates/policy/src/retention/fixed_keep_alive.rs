//! Every instance is kept for the same time after each use, and paused after a grace time if its
//! function has it paused at all.
//!
//! `pause = idle_since + pause_after`, `stop_at = idle_since + keep_alive`

use super::{Retention, Schedule};
use crate::{InstanceView, Random, View};

/// Keeps instances as their functions' settings say.
#[derive(Debug, Clone, Copy, Default)]
pub struct FixedKeepAlive;

/// Makes the policy.
pub fn policy() -> Box<dyn Retention> {
    Box::new(FixedKeepAlive)
}

impl Retention for FixedKeepAlive {
    fn schedule(&mut self, _: View<'_>, _: &mut Random, instance: &InstanceView<'_>) -> Schedule {
        let function = instance.function();
        let settings = function.settings();
        let pause_at = instance.since().saturating_add(settings.pause_after);
        Schedule {
            pause: settings.pause.map(|how| (pause_at, how)),
            stop_at: instance.since().saturating_add(settings.keep_alive),
        }
    }
}
