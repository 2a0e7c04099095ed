//! Room on workers: eviction and preemption.

use crate::eviction::Victims;
use crate::state::{Phase, Worker};
use crate::{Decision, Resources, Scheduler, StopReason, View, WorkerId};

impl Scheduler {
    /// Evicts idle instances until one of this size fits, or none is left that may go.
    pub(super) fn make_room(
        &mut self,
        worker: usize,
        allocation: Resources,
        out: &mut Vec<Decision>,
    ) {
        self.take_room(worker, Victims::Idle, |worker| worker.room().fits(allocation), out);
    }

    /// Evicts idle instances until a worker holds no more than it has room for.
    pub(super) fn shrink(&mut self, worker: usize, out: &mut Vec<Decision>) {
        self.take_room(worker, Victims::Idle, |worker| !worker.is_overfull(), out);
    }

    /// Preempts active instances until one of the function fits once they are gone.
    pub(super) fn preempt_for(&mut self, slot: usize, worker: WorkerId, out: &mut Vec<Decision>) {
        let allocation = self.state.size_of(slot).room;
        let has_room = |worker: &Worker| worker.room_after_preemption().fits(allocation);
        if let Some(worker) = self.state.worker(worker) {
            self.take_room(worker, Victims::Active, has_room, out);
        }
    }

    /// Stops instances until so much memory is freed, less what is being freed already.
    pub(super) fn relieve(&mut self, worker: WorkerId, bytes: u64, out: &mut Vec<Decision>) {
        if let Some(worker) = self.state.worker(worker) {
            self.take_room(worker, Victims::Any, |worker| worker.freeing >= bytes, out);
        }
    }

    /// Takes the room of victims, until it suffices or there are none.
    fn take_room(
        &mut self,
        worker: usize,
        victims: Victims,
        suffices: impl Fn(&Worker) -> bool,
        out: &mut Vec<Decision>,
    ) {
        while !suffices(&self.state.workers[worker]) {
            // What is there on the account of hints is in nobody's way.
            if victims != Victims::Active
                && let Some(slot) = self.state.first_held(worker)
            {
                self.stop(slot, StopReason::Evicted, out);
                continue;
            }
            let id = self.state.workers[worker].id;
            let view = View::new(&self.state);
            let victim = self.policies.eviction.victim(view, &mut self.random, id, victims);
            let Some(slot) = victim.and_then(|victim| self.state.instance(victim)) else { return };
            let instance = &self.state.instances[slot];
            if instance.worker() != worker {
                return;
            } else if instance.is_evictable() && victims != Victims::Active {
                self.stop(slot, StopReason::Evicted, out);
            } else if instance.is_preemptible() && victims != Victims::Idle {
                self.preempt(slot, out);
            } else {
                return;
            }
        }
    }

    fn preempt(&mut self, slot: usize, out: &mut Vec<Decision>) {
        self.state.unlink(slot);
        let instance = &mut self.state.instances[slot];
        instance.phase = Phase::Preempting;
        let (id, worker) = (instance.id, instance.worker());
        self.state.workers[worker].is_pressed = true;
        self.state.link(slot);
        out.push(Decision::Preempt { instance: id });
    }
}
