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
        let function = instance.function;
        instance.since = self.state.now;
        let known = &mut self.state.functions[function];
        known.statistics.initialization.add(initialization);
        if self.state.instances[slot].bound.is_empty() {
            self.free(slot, out);
        } else {
            self.assign_bound(slot, out);
        }
        self.serve(function, out);
    }

    pub(super) fn failed(&mut self, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(slot) = self.in_phase(id, Phase::Starting) else { return };
        let function = self.state.instances[slot].function;
        for request in self.take_requests(slot) {
            self.leave(function);
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
        let Some((slot, request)) = self.take_served(request, id) else { return };
        let instance = &mut self.state.instances[slot];
        let (function, is_last) = (instance.function, instance.serving.is_empty());
        if end == End::Preempted {
            self.lose(slot, out);
            self.readmit(function, request, out);
        } else {
            let phase = instance.phase;
            self.state.functions[function].statistics.on_end(usage);
            self.leave(function);
            match (end, phase) {
                (End::Survives, Phase::Active) if is_last => self.free(slot, out),
                (End::Survives, Phase::Preempting) if is_last => {
                    self.state.link(slot);
                    self.stop(slot, StopReason::Preempted, out);
                }
                (End::Survives, Phase::Active | Phase::Preempting) => self.state.link(slot),
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
        let Some((slot, request)) = self.take_served(request, id) else { return };
        let function = self.state.instances[slot].function;
        self.lose(slot, out);
        self.requeue(function, request, out);
        self.serve(function, out);
    }

    pub(super) fn gone(&mut self, id: InstanceId, out: &mut Vec<Decision>) {
        let Some(slot) = self.state.instance(id) else { return };
        let instance = &self.state.instances[slot];
        let function = instance.function;
        if instance.phase == Phase::Idle && instance.served == 0 {
            self.state.functions[function].is_broken = true;
        }
        self.drop_instance(slot, out);
        self.serve(function, out);
    }

    /// Removes an instance of which nothing is left, whatever it did; its requests wait again.
    pub(super) fn drop_instance(&mut self, slot: usize, out: &mut Vec<Decision>) {
        let function = self.state.instances[slot].function;
        for request in self.take_requests(slot) {
            self.requeue(function, request, out);
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
        let instance = &mut self.state.instances[slot];
        let worker = &mut self.state.workers[instance.worker];
        let before = instance.freeing();
        worker.used -= instance.used;
        instance.used = Resources { cpu, memory };
        worker.used += instance.used;
        worker.freeing = worker.freeing.saturating_sub(before).saturating_add(instance.freeing());
        self.assign_cpus(slot, CpuEvent::Sampled, out);
    }

    /// Takes the request from the instance that serves it, which is not linked then.
    fn take_served(&mut self, request: RequestId, id: InstanceId) -> Option<(usize, Request)> {
        let slot = self.state.instance(id)?;
        let serving = &self.state.instances[slot].serving;
        let index = serving.iter().position(|served| served.id == request)?;
        self.state.unlink(slot);
        Some((slot, self.state.instances[slot].serving.remove(index)))
    }

    /// Nothing is left of an instance, which is not linked; it stays known until the ends of all its
    /// requests are reported.
    fn lose(&mut self, slot: usize, out: &mut Vec<Decision>) {
        self.timers.clear(slot);
        let instance = &mut self.state.instances[slot];
        let is_last = instance.serving.is_empty();
        instance.phase = Phase::Stopping;
        self.state.link(slot);
        if is_last {
            self.remove(slot, out);
        }
    }

    /// Takes all requests that the instance serves or was started for.
    fn take_requests(&mut self, slot: usize) -> Vec<Request> {
        self.state.unlink(slot);
        let instance = &mut self.state.instances[slot];
        let function = instance.function;
        let bound = std::mem::take(&mut instance.bound);
        let mut requests = std::mem::take(&mut instance.serving).into_vec();
        requests.extend(
            bound.into_iter().filter_map(|key| Some(self.state.take_bound(function, key)?.0)),
        );
        self.state.link(slot);
        requests
    }

    /// Forgets an instance that is linked and has no requests.
    fn remove(&mut self, slot: usize, out: &mut Vec<Decision>) {
        self.assign_cpus(slot, CpuEvent::Gone, out);
        self.timers.clear(slot);
        let instance = self.state.remove_instance(slot);
        self.policies.eviction.on_gone(instance.id);
        self.is_room_new = true;
    }

    fn in_phase(&self, id: InstanceId, phase: Phase) -> Option<usize> {
        self.state.instance(id).filter(|slot| self.state.instances[*slot].phase == phase)
    }
}
