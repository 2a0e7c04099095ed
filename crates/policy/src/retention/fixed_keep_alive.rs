//! Every instance is kept for the same time after each use, and paused after a grace time if its
//! function has it paused at all.
//!
//! `pause = idle_since + pause_after`, `stop_at = idle_since + keep_alive`

use super::{Retention, Schedule, pause};
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
        let keep_alive = instance.function().settings().keep_alive;
        Schedule { pause: pause(instance), stop_at: instance.since().saturating_add(keep_alive) }
    }
}
