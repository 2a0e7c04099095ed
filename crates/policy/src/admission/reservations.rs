//! What is reserved fits: a request is let in if an instance of its function can take it, or if a worker
//! has room for another one beside all that is active.
//!
//! All requests wait in one queue, by the policy for `order`, and none overtakes the first of them: with
//! `shortest-job-first` this is the admission control that Leopard compares itself with (section 4.1).
//! Nobody is preempted. Lambda's limits hold besides.

use super::concurrency_limits::ConcurrencyLimits;
use super::{Admission, Candidate, Ruling, WaitFor};
use crate::{FunctionView, Random, Rejection, View};

/// Lets in what fits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reservations;

/// Makes the policy.
pub fn policy() -> Box<dyn Admission> {
    Box::new(Reservations)
}

impl Admission for Reservations {
    fn admit(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        function: &FunctionView<'_>,
        request: &Candidate,
    ) -> Ruling {
        match ConcurrencyLimits.admit(view, random, function, request) {
            Ruling::Admit => {}
            ruling => return ruling,
        }
        if function.free_slots() > 0 {
            Ruling::Admit
        } else if !view.could_ever_hold(function.settings().allocation) {
            Ruling::Reject(Rejection::TooLarge)
        } else if view.with_room_after_eviction(function.room()).next().is_none() {
            Ruling::Wait(WaitFor::Cluster)
        } else if function.instances() >= function.settings().max_instances {
            Ruling::Wait(WaitFor::Function)
        } else {
            Ruling::Admit
        }
    }
}
