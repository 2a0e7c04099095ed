//! What is reported of instances.

use crate::cpu::CpuEvent;
use crate::state::{Phase, Request};
use crate::{
    Decision, End, InstanceId, Nanos, Rejection, RequestId, Resources, Scheduler, StopReason, Usage,
};

impl Scheduler {
    pub(super) fn ready(&mut self, id: InstanceId, initialization: Nanos, out: &mut Vec<Decision>) {
        let Some(slot) = self.in_phase(id, Phase::Starting) else { return };
        self.state.unlink(slot);
        let instance = &mut self.state.instances[slot];
        let function = instance.function();
        instance.since = self.state.now;
        let known = &mut self.state.functions[function];
        known.extra.initialization.add(initialization);
        if self.state.extras[slot].bound.is_empty() {
            self.free(slot, out);
        } else {
            self.assign_bound(slot, out);
        }
        self.serve(function, out);
    }

    pub(super) fn failed(&mut self, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(slot) = self.in_phase(id, Phase::Starting) else {
            // One that was stopped while it started.
            if self.in_phase(id, Phase::Stopping).is_some() {
                self.gone(id, out);
            }
            return;
        };
        let function = self.state.instances[slot].function();
        for request in self.take_requests(slot) {
            self.leave(function, request.key);
            let reason = Rejection::StartFailed(id);
            out.push(Decision::Reject { request: request.id, reason });
        }
        self.state.functions[function].is_broken = true;
        self.remove(slot, out);
        self.serve(function, out);
    }

    pub(super) fn ended(
        &mut self,
        request: RequestId,
        id: InstanceId,
        end: End,
        usage: &Usage,
        out: &mut Vec<Decision>,
    ) {
        self.state.read_ahead(id);
        let Some((slot, index)) = self.position(request, id) else { return };
        let instance = &self.state.instances[slot];
        let function = instance.function();
        if end != End::Preempted {
            self.state.workers[instance.worker()].is_pressed = false;
        }
        let instance = &self.state.instances[slot];
        if end == End::Survives && instance.phase == Phase::Active && instance.retiring.is_none() {
            let key = instance.serving[index].key;
            let is_idle = self.state.end(slot, index);
            self.state.on_end(function, usage);
            self.leave(function, key);
            if is_idle {
                self.idle(slot, out);
            }
        } else if end == End::Preempted {
            let request = self.take_served(slot, index);
            self.lose(slot, out);
            self.readmit(function, request, out);
        } else {
            let request = self.take_served(slot, index);
            self.state.on_end(function, usage);
            self.leave(function, request.key);
            let instance = &self.state.instances[slot];
            match (end, instance.phase, instance.retiring) {
                (End::Survives, Phase::Active, Some(reason)) => {
                    self.stop_if_last(slot, reason, out);
                }
                (End::Survives, Phase::Preempting, _) => {
                    self.stop_if_last(slot, StopReason::Preempted, out);
                }
                _ => self.lose(slot, out),
            }
        }
        self.serve(function, out);
    }

    pub(super) fn undelivered(
        &mut self,
        request: RequestId,
        id: InstanceId,
        out: &mut Vec<Decision>,
    ) {
        let Some((slot, index)) = self.position(request, id) else { return };
        let instance = &self.state.instances[slot];
        let (function, preempted) = (instance.function(), instance.phase == Phase::Preempting);
        let request = self.take_served(slot, index);
        self.lose(slot, out);
        if preempted {
            self.readmit(function, request, out);
        } else {
            self.requeue(function, request, out);
        }
        self.serve(function, out);
    }

    pub(super) fn gone(&mut self, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(slot) = self.state.instance(id) else { return };
        let instance = &self.state.instances[slot];
        let function = instance.function();
        if instance.phase == Phase::Idle && instance.served == 0 {
            self.state.functions[function].is_broken = true;
        }
        self.drop_instance(slot, out);
        self.serve(function, out);
    }

    /// Removes an instance of which nothing is left, whatever it did; its requests wait again.
    pub(super) fn drop_instance(&mut self, slot: usize, out: &mut Vec<Decision>) {
        let instance = &self.state.instances[slot];
        let (function, preempted) = (instance.function(), instance.phase == Phase::Preempting);
        for request in self.take_requests(slot) {
            if preempted {
                self.readmit(function, request, out);
            } else {
                self.requeue(function, request, out);
            }
        }
        self.remove(slot, out);
    }

    pub(super) fn sampled(
        &mut self,
        id: InstanceId,
        cpu: u64,
        memory: u64,
        out: &mut Vec<Decision>,
    ) {
        let Some(slot) = self.state.instance(id) else { return };
        let size = self.state.size(slot);
        let used = Resources { cpu, memory };
        let before = self.state.set_used(slot, used);
        let instance = &self.state.instances[slot];
        let worker = &mut self.state.workers[instance.worker()];
        worker.freeing = worker.freeing.saturating_sub(instance.freeing(&size, before));
        worker.freeing = worker.freeing.saturating_add(instance.freeing(&size, used));
        // Who waits for what others leave idle may go on.
        self.is_room_new |= used.cpu < before.cpu || used.memory < before.memory;
        self.assign_cpus(slot, CpuEvent::Sampled, out);
    }

    /// The instance's slot, and the position of the request among those that it serves.
    fn position(&self, request: RequestId, id: InstanceId) -> Option<(usize, usize)> {
        let slot = self.state.instance(id)?;
        let serving = &self.state.instances[slot].serving;
        Some((slot, serving.iter().position(|served| served.id == request)?))
    }

    /// Takes a request from the instance that serves it, which is not linked then.
    fn take_served(&mut self, slot: usize, index: usize) -> Request {
        self.state.unlink(slot);
        self.state.instances[slot].take_served(index)
    }

    /// Links an instance that answered, and stops it for this reason if that was its last request.
    fn stop_if_last(&mut self, slot: usize, reason: StopReason, out: &mut Vec<Decision>) {
        self.state.link(slot);
        if self.state.instances[slot].serving.is_empty() {
            self.stop(slot, reason, out);
        }
    }

    /// Nothing is left of an instance, which is not linked; it stays known until the ends of all its
    /// requests are reported.
    fn lose(&mut self, slot: usize, out: &mut Vec<Decision>) {
        self.state.release(slot);
        self.timers.clear(&mut self.state.instances, slot);
        let instance = &mut self.state.instances[slot];
        let is_last = instance.serving.is_empty();
        let was_stopping =
            std::mem::replace(&mut instance.phase, Phase::Stopping) == Phase::Stopping;
        self.state.link(slot);
        if !was_stopping {
            self.assign_cpus(slot, CpuEvent::Gone, out);
        }
        self.is_room_new = true;
        if is_last {
            self.remove(slot, out);
        }
    }

    /// Takes all requests that the instance serves or was started for.
    fn take_requests(&mut self, slot: usize) -> Vec<Request> {
        self.state.unlink(slot);
        let instance = &mut self.state.instances[slot];
        let function = instance.function();
        let bound = std::mem::take(&mut self.state.extras[slot].bound);
        let mut requests = std::mem::take(&mut instance.serving).into_vec();
        requests.extend(
            bound.into_iter().filter_map(|key| Some(self.state.take_bound(function, key)?.0)),
        );
        self.state.link(slot);
        requests
    }

    /// Forgets an instance that is linked and has no requests.
    fn remove(&mut self, slot: usize, out: &mut Vec<Decision>) {
        if self.state.instances[slot].phase != Phase::Stopping {
            self.assign_cpus(slot, CpuEvent::Gone, out);
        }
        self.timers.forget(&mut self.state.instances, slot);
        let instance = self.state.remove_instance(slot);
        self.policies.eviction.on_gone(instance.id);
        if instance.kept {
            self.keep_another(instance.function(), out);
        }
        self.is_room_new = true;
    }

    fn in_phase(&self, id: InstanceId, phase: Phase) -> Option<usize> {
        self.state.instance(id).filter(|slot| self.state.instances[*slot].phase == phase)
    }
}
