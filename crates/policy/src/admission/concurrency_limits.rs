//! Lambda's rule: as many requests in flight as the function, and the workers together, may have.
//!
//! `admit <=> function.in_flight < function.max_in_flight and in_flight < sum(workers.max_instances)`

use super::{Admission, Candidate, Ruling, WaitFor};
use crate::{Random, Rejection, View};

/// Rejects what exceeds a limit, or has it wait if it can.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConcurrencyLimits;

/// Makes the policy.
pub fn policy() -> Box<dyn Admission> {
    Box::new(ConcurrencyLimits)
}

impl Admission for ConcurrencyLimits {
    fn admit(&mut self, view: View<'_>, _: &mut Random, request: &Candidate) -> Ruling {
        let Some(function) = view.function(request.function) else {
            return Ruling::Reject(Rejection::NoFunction);
        };
        let (reason, what) = if function.in_flight() >= function.settings().max_in_flight {
            (Rejection::FunctionLimit, WaitFor::Function)
        } else if u64::from(view.in_flight()) >= view.limit() {
            (Rejection::WorkerLimit, WaitFor::Cluster)
        } else {
            return Ruling::Admit;
        };
        if request.can_wait { Ruling::Wait(what) } else { Ruling::Reject(reason) }
    }
}
