//! Interactive requests before batch: they have preemptible batch instances make room.
//!
//! Beyond Lambda's limits a request is let in if an instance of its function can take it, or if a
//! worker has room for another one beside all that is active; room that an interactive request waits
//! for is not for batch. A request that is not let in waits in the queue of its class. If it is
//! interactive, preemptible instances of the worker that needs to give up least are preempted for it,
//! unless room for it is being made already. One that may be preempted itself has nobody preempted: they
//! would preempt each other for ever.

use super::concurrency_limits::ConcurrencyLimits;
use super::{Admission, Candidate, Ruling, WaitFor};
use crate::{FunctionView, Qos, Random, Rejection, View, WorkerView};

/// Lets requests in by class.
#[derive(Debug, Clone, Copy, Default)]
pub struct TwoClass;

/// Makes the policy.
pub fn policy() -> Box<dyn Admission> {
    Box::new(TwoClass)
}

impl Admission for TwoClass {
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
        let allocation = function.room();
        if function.free_slots() > 0 {
            return Ruling::Admit;
        }
        if !view.could_ever_hold(function.settings().allocation) {
            return Ruling::Reject(Rejection::TooLarge);
        }
        if function.settings().qos == Qos::Batch && view.is_interactive_waiting() {
            // The room may be too little for the one that waits, but it is the beginning of enough.
            return Ruling::Wait(WaitFor::Class);
        }
        if view.with_room_after_eviction(allocation).next().is_some() {
            return Ruling::Admit;
        }
        if function.instances() >= function.settings().max_instances {
            // Room would be of no use to it.
            return Ruling::Wait(WaitFor::Function);
        }
        if function.settings().qos == Qos::Batch
            || function.settings().preemptible
            || view.with_room_after_preemption(allocation).next().is_some()
        {
            return Ruling::Wait(WaitFor::Class);
        }
        // What active instances would have to give up, if they can.
        let shortage = |worker: WorkerView<'_>| {
            let remaining = worker.allocated() - worker.evictable() - worker.preempting();
            let shortage = remaining + allocation - worker.capacity().resources;
            let suffices = shortage.fits(worker.preemptible()) && worker.active().next().is_some();
            suffices.then_some((shortage.memory, shortage.cpu, worker.id()))
        };
        match view.workers().filter_map(shortage).min() {
            Some((.., worker)) => Ruling::Preempt(worker),
            None => Ruling::Wait(WaitFor::Class),
        }
    }
}
