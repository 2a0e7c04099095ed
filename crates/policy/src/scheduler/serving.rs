//! Admitted requests until an instance serves them.

use crate::admission::{Candidate, WaitFor};
use crate::cpu::CpuEvent;
use crate::state::{Phase, Request};
use crate::{Decision, Qos, Rejection, Scheduler, View};

impl Scheduler {
    /// Gives what waits to what is available, and starts what is missing.
    #[inline]
    pub(super) fn serve(&mut self, slot: usize, out: &mut Vec<Decision>) {
        if self.may_lack(slot) || self.state.functions[slot].deleted {
            self.serve_waiting(slot, out);
        }
    }

    #[inline(never)]
    fn serve_waiting(&mut self, slot: usize, out: &mut Vec<Decision>) {
        let mut is_refused = false;
        loop {
            let function = &self.state.functions[slot];
            if function.waiting() == 0 || function.available.is_empty() {
                break;
            }
            let view = View::new(&self.state);
            let function = view.function_at(slot);
            let is_late = self.policies.binding.is_late(view, &mut self.random, &function);
            let function = &self.state.functions[slot];
            let unbound = function.extra.unbound.first_key_value().map(|(key, _)| *key);
            let bound = if is_late { function.extra.bound.first_key_value() } else { None };
            let next = unbound.into_iter().chain(bound.map(|(key, _)| *key)).min();
            let Some(key) = next else { break };
            let Some(instance) = self.choose(slot) else {
                is_refused = true;
                break;
            };
            let request = if Some(key) == unbound {
                self.state.pop_unbound(slot)
            } else {
                self.release(slot, key)
            };
            let Some(request) = request else { break };
            self.assign(instance, request, out);
        }
        let was_room_new = self.is_room_new;
        self.scale(slot, out);
        if is_refused && self.state.functions[slot].waiting() > 0 {
            // It is tried again when something ends, also if no further instance may be started.
            self.state.park(slot);
            self.is_room_new = was_room_new;
        }
        self.state.forget(slot);
    }

    /// Takes a request from the starting instance that it waits for.
    fn release(&mut self, slot: usize, key: crate::state::Key) -> Option<Request> {
        let starting =
            self.state.functions[slot].extra.bound.get(&key).map(|(_, starting)| *starting)?;
        self.state.unlink(starting);
        self.state.extras[starting].bound.retain(|bound| *bound != key);
        self.state.link(starting);
        self.state.take_bound(slot, key).map(|(request, _)| request)
    }

    /// Gives a request to an available instance; false if there is none.
    pub(super) fn serve_at_once(
        &mut self,
        slot: usize,
        request: Request,
        out: &mut Vec<Decision>,
    ) -> bool {
        if self.state.functions[slot].available.is_empty() {
            return false;
        }
        let instance = self.choose(slot);
        if let Some(instance) = instance {
            self.assign(instance, request, out);
        }
        instance.is_some()
    }

    /// The available instance that serves next.
    #[inline]
    fn choose(&mut self, slot: usize) -> Option<usize> {
        let view = View::new(&self.state);
        let function = view.function_at(slot);
        let mut chosen = self.policies.reuse.choose(view, &mut self.random, &function)?;
        if self.state.reserves_only && !view.instance(chosen)?.worker().takes_again(&function) {
            let mut latest = function.available().rev();
            chosen = latest.find(|other| other.worker().takes_again(&function))?.id();
        }
        self.state.instance(chosen).filter(|instance| {
            let instance = &self.state.instances[*instance];
            instance.function() == slot && instance.is_available()
        })
    }

    #[expect(clippy::inline_always, reason = "half of a call would be to save registers")]
    #[inline(always)]
    fn assign(&mut self, slot: usize, request: Request, out: &mut Vec<Decision>) {
        let begun = self.state.begin(slot, request);
        if begun.was_idle {
            self.state.release(slot);
            self.timers.clear(&mut self.state.instances, slot);
            self.assign_cpus(slot, CpuEvent::Active, out);
        }
        let instance = &mut self.state.instances[slot];
        instance.served = instance.served.saturating_add(1);
        let (request, instance, resume) = (request.id, instance.id, begun.resume);
        out.push(Decision::Assign { request, instance, resume });
    }

    /// Gives an instance that has just started, and is not linked, the requests that it was started
    /// for.
    pub(super) fn assign_bound(&mut self, slot: usize, out: &mut Vec<Decision>) {
        let function = self.state.instances[slot].function();
        for key in std::mem::take(&mut self.state.extras[slot].bound) {
            if let Some((request, _)) = self.state.take_bound(function, key) {
                self.state.instances[slot].serving.push(request);
            }
        }
        self.state.release(slot);
        self.state.instances[slot].phase = Phase::Active;
        self.state.functions[function].is_broken = false;
        self.state.link(slot);
        self.assign_cpus(slot, CpuEvent::Active, out);
        let instance = &mut self.state.instances[slot];
        instance.served = instance.serving.len() as u32;
        out.extend(instance.serving.iter().map(|request| Decision::Assign {
            request: request.id,
            instance: instance.id,
            resume: None,
        }));
    }

    /// Has an admitted request that did not run wait again, before all that came later.
    pub(super) fn requeue(&mut self, slot: usize, mut request: Request, out: &mut Vec<Decision>) {
        if self.state.functions[slot].deleted {
            self.leave(slot, request.key);
            out.push(Decision::Reject { request: request.id, reason: Rejection::NoFunction });
        } else {
            request.key = request.key.requeued();
            self.state.push_unbound(slot, request);
        }
    }

    /// Has a request that was preempted wait to be admitted again: before all batch requests that
    /// came later, but behind all interactive ones that wait, since it would take the room that was
    /// made for them by preempting it.
    pub(super) fn readmit(&mut self, slot: usize, request: Request, out: &mut Vec<Decision>) {
        let function = &self.state.functions[slot];
        if function.deleted || self.state.shutting_down {
            return self.requeue(slot, request, out);
        }
        let Request { id, key: admitted, arrived } = request;
        let candidate =
            Candidate { request: id, function: function.extra.id, arrived, can_wait: true };
        let key = match function.settings.qos {
            Qos::Batch => admitted.requeued(),
            Qos::Interactive => self.key(slot, &Candidate { arrived: self.state.now, ..candidate }),
        };
        self.leave(slot, admitted);
        self.enqueue(slot, key, candidate, WaitFor::Class);
    }
}
