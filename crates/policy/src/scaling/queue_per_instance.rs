//! Each instance may have a queue: another is started only when all are full and their queues longer than
//! a bound, `queue_length`.
//!
//! `starts = max((serving + waiting) / (concurrency + queue_length) - instances, min_instances -
//! instances, 0)`, the quotient rounded up
//!
//! The requests wait together, for whichever instance is free first: a request behind a slow one is not
//! stuck there. With a queue of 0 this is `one-per-request`, but for instances that are free already.

use super::{Scaling, missing_ready};
use crate::{FunctionView, Random, View};

/// Starts an instance when the others have more to do than they may.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueuePerInstance;

/// Makes the policy.
pub fn policy() -> Box<dyn Scaling> {
    Box::new(QueuePerInstance)
}

impl Scaling for QueuePerInstance {
    fn starts_ahead(&self) -> bool {
        false
    }

    fn starts(&mut self, view: View<'_>, _: &mut Random, function: &FunctionView<'_>) -> u32 {
        let concurrency = u64::from(function.settings().concurrency.max(1));
        let each = concurrency + u64::from(view.parameters().queue_length);
        let requests = u64::from(function.serving()) + function.waiting_for_new() as u64;
        let needed = u32::try_from(requests.div_ceil(each)).unwrap_or(u32::MAX);
        needed.saturating_sub(function.instances()).max(missing_ready(function))
    }
}
