//! Leopard's admission (section 4.3.3): reservations that fit, and beyond them what is likely to.
//!
//! What has a reservation (cores that are not spot, or memory that is not preemptible) is let in if a
//! worker has as much that is reserved for no one. Batch work without any is let in where what is idle
//! now suffices for what its function used so far on average; unless, with the averages of all that runs
//! there, memory would be exceeded, or CPUs by more than `cpu_overcommit` (twice). A function without a
//! past is expected to use all that is allocated to it. What is not let in waits in the queue of its
//! class, interactive before batch. Batch work with a reservation is not let in while interactive
//! requests wait; without one it is, since it is in nobody's way.
//!
//! In the paper, a request waits on the worker to which the load balancer sent it; here it waits for
//! whichever worker takes it first.

use super::concurrency_limits::ConcurrencyLimits;
use super::{Admission, Candidate, Ruling, WaitFor};
use crate::{FunctionView, Qos, Random, Rejection, View, leopard};

/// Lets in by reservation, and by expectation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leopard;

/// Makes the policy.
pub fn policy() -> Box<dyn Admission> {
    Box::new(Leopard)
}

impl Admission for Leopard {
    fn reserves_only(&self) -> bool {
        true
    }

    fn reads_samples(&self) -> bool {
        true
    }

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
        let settings = function.settings();
        let may_be_refused = settings.preemptible || leopard::is_unreserved(function);
        let reuses = function.free_slots() > 0
            && (!may_be_refused
                || function.available().any(|it| it.worker().takes_again(function)));
        if reuses {
            return Ruling::Admit;
        }
        if !view.could_ever_hold(settings.allocation) {
            return Ruling::Reject(Rejection::TooLarge);
        }
        let is_in_the_way = settings.qos == Qos::Batch && !leopard::is_unreserved(function);
        if is_in_the_way && view.is_interactive_waiting() {
            return Ruling::Wait(WaitFor::Class);
        }
        if view.takers(function).next().is_none() {
            Ruling::Wait(WaitFor::Class)
        } else if function.instances() >= settings.max_instances && function.in_flight() > 0 {
            Ruling::Wait(WaitFor::Function)
        } else if function.instances() >= settings.max_instances {
            // They idle where they are not to be used now.
            Ruling::Wait(WaitFor::Class)
        } else {
            Ruling::Admit
        }
    }
}
