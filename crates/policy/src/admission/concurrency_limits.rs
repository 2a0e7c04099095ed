//! Lambda's rule: as many requests in flight as the function, and the workers together, may have.
//!
//! `admit <=> function.in_flight < function.max_in_flight and in_flight < limit`, where `limit` is the
//! sum of the workers' `max_instances`, less a tenth (at least one) for a request that can wait: a
//! backlog must not have every request rejected that cannot.

use super::{Admission, Candidate, Ruling, WaitFor};
use crate::{FunctionView, Random, Rejection, View};

/// Rejects what exceeds a limit, or has it wait if it can.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConcurrencyLimits;

/// Makes the policy.
pub fn policy() -> Box<dyn Admission> {
    Box::new(ConcurrencyLimits)
}

/// How many requests may be in flight, given how many the workers take.
fn limit(workers: u64, can_wait: bool) -> u64 {
    if can_wait && workers > 1 { workers - workers.div_ceil(10) } else { workers }
}

impl Admission for ConcurrencyLimits {
    fn admit(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
        request: &Candidate,
    ) -> Ruling {
        let (reason, what) = if function.in_flight() >= function.settings().max_in_flight {
            (Rejection::FunctionLimit, WaitFor::Function)
        } else if u64::from(view.in_flight()) >= limit(view.limit(), request.can_wait) {
            (Rejection::WorkerLimit, WaitFor::Cluster)
        } else {
            return Ruling::Admit;
        };
        if request.can_wait { Ruling::Wait(what) } else { Ruling::Reject(reason) }
    }
}
