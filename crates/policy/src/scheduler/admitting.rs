//! Requests until they are admitted.

use crate::admission::{Candidate, Ruling, WaitFor};
use crate::state::{Key, Request, queue_of};
use crate::{Decision, FunctionId, Qos, Rejection, RequestId, Scheduler, View};

/// So many are asked behind a request that does not fit, so that an event's cost does not grow with what waits.
const MOST_BEHIND: usize = 32;

/// What came of asking admission again.
enum Asked {
    /// The function's first request is another, or waits for something else.
    Changed,
    /// It waits on.
    MustWait,
    /// It waits until what was preempted has gone.
    HasRoomMade,
}

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
                Some(what) if !self.may_pass(what, qos) => {
                    self.enqueue(slot, key, candidate, what);
                }
                _ => self.admit(slot, key, &candidate, out),
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

    /// Asks admission again for the first of each queue, until it has to wait on; and for those behind it, if it
    /// may be passed.
    pub(super) fn admit_waiting(&mut self, out: &mut Vec<Decision>) {
        for queue in self.state.queues() {
            while let Some((key, slot)) = self.state.first_in_queue(queue) {
                match self.ask_again(slot, key, true, out) {
                    Asked::Changed => {}
                    Asked::MustWait => {
                        self.admit_behind(queue, key, slot, out);
                        break;
                    }
                    Asked::HasRoomMade => break,
                }
            }
        }
    }

    /// Lets in what fits of those behind the first of a queue, which does not.
    fn admit_behind(&mut self, queue: usize, first: Key, slot: usize, out: &mut Vec<Decision>) {
        if !self.may_be_passed(queue, first, slot) {
            return;
        }
        let mut after = (first, slot);
        for _ in 0..MOST_BEHIND {
            let Some(next) = self.state.next_in_queue(queue, after) else { break };
            self.ask_again(next.1, next.0, false, out);
            after = next;
        }
    }

    /// Asks admission for the request of this key, which is the first of its function's.
    fn ask_again(
        &mut self,
        slot: usize,
        key: Key,
        is_first: bool,
        out: &mut Vec<Decision>,
    ) -> Asked {
        let function = &self.state.functions[slot];
        let was = function.waits_for;
        let Some((_, &candidate)) = function.extra.backlog.first_key_value() else {
            return Asked::MustWait;
        };
        match self.rule(slot, &candidate) {
            Ruling::Admit => {
                self.pop_first(slot, was);
                self.admit(slot, key, &candidate, out);
            }
            Ruling::Reject(reason) => {
                self.pop_first(slot, was);
                out.push(Decision::Reject { request: candidate.request, reason });
                self.state.forget(slot);
            }
            Ruling::Wait(what) if Some(what) == was => return Asked::MustWait,
            Ruling::Wait(what) => self.state.wait_for(slot, Some(what)),
            // Room is made for the first alone.
            Ruling::Preempt(_) if !is_first => return Asked::MustWait,
            Ruling::Preempt(worker) => {
                self.state.wait_for(slot, Some(WaitFor::Class));
                self.preempt_for(slot, worker, out);
                if was == Some(WaitFor::Class) {
                    return Asked::HasRoomMade;
                }
            }
        }
        Asked::Changed
    }

    /// Whether what arrives, and fits, is let in before what waits for this in its class.
    fn may_pass(&mut self, what: WaitFor, qos: Qos) -> bool {
        let queues = [Some(what), (what == WaitFor::Cluster).then_some(WaitFor::Class)];
        queues.into_iter().flatten().all(|what| {
            let Some(queue) = queue_of(what, qos) else { return true };
            let first = self.state.first_in_queue(queue);
            first.is_none_or(|(key, slot)| self.may_be_passed(queue, key, slot))
        })
    }

    /// Whether the first of a queue may be passed now; notes since when it has been the first.
    fn may_be_passed(&mut self, queue: usize, first: Key, slot: usize) -> bool {
        let now = self.state.now;
        let since = match self.firsts[queue] {
            Some((key, since)) if key == first => since,
            _ => now,
        };
        self.firsts[queue] = Some((first, since));
        let view = View::new(&self.state);
        self.policies.order.may_be_passed(view, &view.function_at(slot), now - since)
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
