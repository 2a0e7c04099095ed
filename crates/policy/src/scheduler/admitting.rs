//! Requests until they are admitted.

use crate::admission::{Candidate, Ruling, WaitFor};
use crate::state::{Key, Request};
use crate::{Decision, FunctionId, Rejection, RequestId, Scheduler, View};

impl Scheduler {
    /// A request comes in.
    pub(super) fn arrive(
        &mut self,
        request: RequestId,
        function: FunctionId,
        can_wait: bool,
        out: &mut Vec<Decision>,
    ) {
        if self.state.shutting_down {
            out.push(Decision::Reject { request, reason: Rejection::ShuttingDown });
            return;
        }
        let slot = self.state.function(function);
        let Some(slot) = slot.filter(|slot| !self.state.functions[*slot].deleted) else {
            out.push(Decision::Reject { request, reason: Rejection::NoFunction });
            return;
        };
        let arrived = self.state.now;
        self.state.functions[slot].statistics.on_arrival(arrived);
        if self.prewarms {
            let view = View::new(&self.state);
            self.policies.retention.on_arrival(view, &view.function_at(slot));
        }
        let candidate = Candidate { request, function, arrived, can_wait };
        let key = self.key(slot, &candidate);
        let known = &self.state.functions[slot];
        let qos = known.settings.qos;
        if can_wait && known.waits_for.is_some() && known.first_key() < Some(key) {
            self.state.push_backlog(slot, key, candidate);
            return;
        }
        match self.rule(slot, &candidate) {
            Ruling::Admit => match self.state.earlier_waits_for(key, qos) {
                Some(what) => self.enqueue(slot, key, candidate, what),
                None => self.admit(slot, key, &candidate, out),
            },
            Ruling::Reject(reason) => out.push(Decision::Reject { request, reason }),
            Ruling::Wait(what) => self.enqueue(slot, key, candidate, what),
            Ruling::Preempt(worker) => {
                // What is made room for is the first of its class, which another may be.
                let is_first = self.state.earlier_waits_for(key, qos).is_none();
                self.enqueue(slot, key, candidate, WaitFor::Class);
                if is_first {
                    self.preempt_for(slot, worker, out);
                }
            }
        }
    }

    /// The position that a request takes which arrives now.
    pub(super) fn key(&mut self, slot: usize, candidate: &Candidate) -> Key {
        let view = View::new(&self.state);
        let function = view.function_at(slot);
        let rank = self.policies.order.rank(view, &mut self.random, &function, candidate);
        Key::new(rank, self.state.next_arrival(), candidate.can_wait)
    }

    fn rule(&mut self, slot: usize, candidate: &Candidate) -> Ruling {
        let view = View::new(&self.state);
        let function = view.function_at(slot);
        self.policies.admission.admit(view, &mut self.random, &function, candidate)
    }

    /// Lets a request in.
    #[expect(clippy::inline_always, reason = "half of a call would be to save registers")]
    #[inline(always)]
    fn admit(&mut self, slot: usize, key: Key, candidate: &Candidate, out: &mut Vec<Decision>) {
        let request = Request { id: candidate.request, key, arrived: candidate.arrived };
        self.state.in_flight += 1;
        self.state.could_wait_in_flight += u32::from(key.can_wait());
        let function = &mut self.state.functions[slot];
        function.in_flight += 1;
        if function.waiting() > 0 || !self.serve_at_once(slot, request, out) {
            self.state.push_unbound(slot, request);
            self.serve(slot, out);
        } else {
            self.scale(slot, out);
        }
    }

    /// Has a request wait to be admitted. What the function waits for changes only if the request is
    /// the first of its backlog.
    pub(super) fn enqueue(&mut self, slot: usize, key: Key, request: Candidate, what: WaitFor) {
        let function = &self.state.functions[slot];
        if function.extra.backlog.first_key_value().is_some_and(|(first, _)| *first < key) {
            self.state.push_backlog(slot, key, request);
            return;
        }
        self.state.leave_queue(slot);
        self.state.push_backlog(slot, key, request);
        self.state.wait_for(slot, Some(what));
    }

    /// A request is not in flight any more: its function's next may be admitted in its stead.
    pub(super) fn leave(&mut self, slot: usize, key: Key) {
        self.state.in_flight -= 1;
        self.state.could_wait_in_flight -= u32::from(key.can_wait());
        let function = &mut self.state.functions[slot];
        function.in_flight -= 1;
        if function.waits_for == Some(WaitFor::Function) {
            // It takes its turn, after those that wait for the cluster.
            self.state.wait_for(slot, Some(WaitFor::Class));
        }
        self.is_room_new = true;
    }

    /// Asks admission again for the first of each queue, until it has to wait on.
    pub(super) fn admit_waiting(&mut self, out: &mut Vec<Decision>) {
        for queue in self.state.queues() {
            while let Some((_, slot)) = self.state.first_in_queue(queue) {
                let function = &self.state.functions[slot];
                let was = function.waits_for;
                let Some((&key, &first)) = function.extra.backlog.first_key_value() else { break };
                match self.rule(slot, &first) {
                    Ruling::Admit => {
                        self.pop_first(slot, was);
                        self.admit(slot, key, &first, out);
                    }
                    Ruling::Reject(reason) => {
                        self.pop_first(slot, was);
                        out.push(Decision::Reject { request: first.request, reason });
                        self.state.forget(slot);
                    }
                    Ruling::Wait(what) if Some(what) == was => break,
                    Ruling::Wait(what) => self.state.wait_for(slot, Some(what)),
                    Ruling::Preempt(worker) => {
                        self.state.wait_for(slot, Some(WaitFor::Class));
                        self.preempt_for(slot, worker, out);
                        if was == Some(WaitFor::Class) {
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Takes the first of the function's backlog; the next one waits for the same.
    fn pop_first(&mut self, slot: usize, was: Option<WaitFor>) {
        self.state.leave_queue(slot);
        self.state.pop_backlog(slot);
        self.state.wait_for(slot, was);
    }

    /// Rejects all that wait to be admitted to the function.
    pub(super) fn reject_backlog(
        &mut self,
        slot: usize,
        reason: Rejection,
        out: &mut Vec<Decision>,
    ) {
        self.state.leave_queue(slot);
        while let Some(request) = self.state.pop_backlog(slot) {
            out.push(Decision::Reject { request: request.request, reason });
        }
    }
}
