//! Every instance is kept for another time after each use, drawn uniformly from `keep_alive_min` to
//! `keep_alive`: what expiry looks like from outside where it depends on what cannot be seen.
//!
//! `stop_at = idle_since + U[min(keep_alive_min, keep_alive), keep_alive]`

use rand_chacha::rand_core::Rng as _;

use super::{Retention, Schedule, pause};
use crate::{InstanceView, Random, View};

/// Keeps instances for random times.
#[derive(Debug, Clone, Copy, Default)]
pub struct Uniform;

/// Makes the policy.
pub fn policy() -> Box<dyn Retention> {
    Box::new(Uniform)
}

impl Retention for Uniform {
    fn schedule(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        instance: &InstanceView<'_>,
    ) -> Schedule {
        let most = instance.function().settings().keep_alive;
        let least = view.parameters().keep_alive_min.min(most);
        // The product's upper half: uniform but for one part in 2^64 / span.
        let values = u128::from(most - least) + 1;
        let drawn = (u128::from(random.next_u64()) * values) >> 64;
        let keep_alive = least + u64::try_from(drawn).expect("below the span, which is a u64");
        Schedule { pause: pause(instance), stop_at: instance.since().saturating_add(keep_alive) }
    }
}
