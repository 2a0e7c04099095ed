//! Lambda's rule: for each waiting request a place on an instance that is starting, and at least the
//! instances that the function is to have ready.
//!
//! `starts = max(waiting / concurrency - starting, min_instances - instances, 0)`, the quotient
//! rounded up

use super::{Scaling, missing_ready};
use crate::{FunctionView, Random, View};

/// Starts what waiting requests need, and what is to be kept ready.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnePerRequest;

/// Makes the policy.
pub fn policy() -> Box<dyn Scaling> {
    Box::new(OnePerRequest)
}

impl Scaling for OnePerRequest {
    fn starts_ahead(&self) -> bool {
        false
    }

    fn starts(&mut self, _: View<'_>, _: &mut Random, function: &FunctionView<'_>) -> u32 {
        let settings = function.settings();
        let needed = (function.waiting_for_new() as u32).div_ceil(settings.concurrency.max(1));
        needed.saturating_sub(function.starting()).max(missing_ready(function))
    }
}
