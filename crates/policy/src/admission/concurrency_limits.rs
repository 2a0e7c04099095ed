//! Lambda's rule: as many requests in flight as the function, and the workers together, may have.
//!
//! `admit <=> function.in_flight < function.max_in_flight and in_flight < limit`, where `limit` is the
//! sum of the workers' `max_instances`. Of requests that can wait no more than nine tenths of it are
//! in flight (`limit` less a tenth, at least one): a backlog must not have every request rejected
//! that cannot. Who cannot wait does not hold up who can for ever either, since a place that becomes
//! free goes to the first that waits.

use super::{Admission, Candidate, Ruling, WaitFor};
use crate::state::nine_tenths;
use crate::{FunctionView, Random, Rejection, View};

/// Rejects what exceeds a limit, or has it wait if it can.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConcurrencyLimits;

/// Makes the policy.
pub fn policy() -> Box<dyn Admission> {
    Box::new(ConcurrencyLimits)
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
        } else if u64::from(view.in_flight()) >= view.limit()
            || request.can_wait
                && u64::from(view.could_wait_in_flight()) >= nine_tenths(view.limit())
        {
            (Rejection::WorkerLimit, WaitFor::Cluster)
        } else {
            return Ruling::Admit;
        };
        if request.can_wait { Ruling::Wait(what) } else { Ruling::Reject(reason) }
    }
}
