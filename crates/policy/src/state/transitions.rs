//! Instances that change what they do: every list and counter that depends on it follows.
//!
//! What each request does, to begin and to end, touches only what it changes. All else takes the
//! instance out of everything with [`State::unlink`], changes it, and adds it again with
//! [`State::link`].

use crate::Pause;
use crate::state::{Counts, Function, Instance, Phase, Request, Size, State};

/// What a request did to the instance that it was given to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// It was idle.
    pub(crate) was_idle: bool,
    /// The pause that this undoes.
    pub(crate) resume: Option<Pause>,
}

impl State {
    /// Has an available instance serve a request.
    pub(crate) fn begin(&mut self, slot: usize, request: Request) -> Begun {
        let size = self.size(slot);
        let instance = &mut self.instances[slot];
        let function = &mut self.functions[instance.function()];
        let worker = &mut self.workers[instance.worker()];
        let is_full = instance.serving.len() + 1 >= instance.concurrency as usize;
        instance.serving.push(request);
        function.is_broken = false;
        function.serving += 1;
        self.worker_loads[instance.worker()] += 1;
        let was_idle = instance.phase == Phase::Idle;
        let resume = instance.paused.take();
        let (kept, preemptible) = (instance.kept, instance.preemptible);
        if was_idle {
            instance.phase = Phase::Active;
            instance.since = self.now;
            function.idle -= 1;
            function.active += 1;
            self.counts.idle -= 1;
            self.counts.busy += 1;
            if let Some(how) = resume {
                *self.counts.paused(how) -= 1;
            }
            worker.reserved += size.reservation;
            if !kept {
                worker.evictable -= 1;
                worker.evictable_resources -= size.room;
                worker.idle.remove(slot, &mut self.instances);
            }
            if preemptible {
                worker.preemptible += size.room;
                worker.active.push(slot, &mut self.instances);
            }
        } else if preemptible {
            worker.active.move_to_end(slot, &mut self.instances);
        }
        if is_full {
            function.available.remove(slot, &mut self.instances);
        } else {
            function.available.move_to_end(slot, &mut self.instances);
        }
        if was_idle {
            self.count_serving(slot);
        }
        Begun { was_idle, resume }
    }

    /// Ends the request at `index` of an active instance that does not retire; whether it is idle
    /// then.
    pub(crate) fn end(&mut self, slot: usize, index: usize) -> bool {
        let size = self.size(slot);
        if self.instances[slot].serving.len() == 1 {
            self.discount_serving(slot);
        }
        let instance = &mut self.instances[slot];
        let function = &mut self.functions[instance.function()];
        let worker_slot = instance.worker();
        let worker = &mut self.workers[worker_slot];
        let was_full = instance.is_full();
        let is_idle = instance.serving.len() == 1;
        instance.take_served(index);
        function.serving -= 1;
        self.worker_loads[worker_slot] -= 1;
        let preemptible = instance.preemptible;
        if is_idle {
            instance.phase = Phase::Idle;
            instance.since = self.now;
            if !instance.kept && function.may_keep_more(self.kept, self.limit) {
                function.kept += 1;
                self.kept += 1;
                instance.kept = true;
            }
            let kept = instance.kept;
            function.active -= 1;
            function.idle += 1;
            self.counts.busy -= 1;
            self.counts.idle += 1;
            worker.reserved -= size.reservation;
            if preemptible {
                worker.preemptible -= size.room;
                worker.active.remove(slot, &mut self.instances);
            }
            if !kept {
                worker.evictable += 1;
                worker.evictable_resources += size.room;
                worker.idle.push(slot, &mut self.instances);
            }
        } else if preemptible {
            worker.active.move_to_end(slot, &mut self.instances);
        }
        if was_full {
            function.available.push(slot, &mut self.instances);
        } else {
            function.available.move_to_end(slot, &mut self.instances);
        }
        if is_idle {
            self.on_room(worker_slot);
        }
        is_idle
    }

    /// Adds the instance to every list and counter that its fields belong to.
    pub(crate) fn link(&mut self, slot: usize) {
        let instance = &self.instances[slot];
        let function = &mut self.functions[instance.function()];
        let bound = self.extras[slot].bound.len();
        let (id, is_available) = (instance.id, instance.is_available());
        let is_spare = is_spare(instance, bound);
        count_phase(&mut self.counts, instance, 1);
        count_function(function, instance, bound, 1);
        if is_available {
            function.available.push(slot, &mut self.instances);
        } else if is_spare {
            function.extra.spare.insert(id, slot);
        }
        self.link_worker(slot);
    }

    /// Takes the instance out of every list and counter, before its fields change.
    pub(crate) fn unlink(&mut self, slot: usize) {
        let instance = &self.instances[slot];
        let function = &mut self.functions[instance.function()];
        let bound = self.extras[slot].bound.len();
        let (id, is_available) = (instance.id, instance.is_available());
        let is_spare = is_spare(instance, bound);
        count_phase(&mut self.counts, instance, -1);
        count_function(function, instance, bound, -1);
        if is_available {
            function.available.remove(slot, &mut self.instances);
        } else if is_spare {
            function.extra.spare.remove(&id);
        }
        self.unlink_worker(slot);
    }

    /// The worker's part of [`Self::link`].
    pub(crate) fn link_worker(&mut self, slot: usize) {
        let size = self.size(slot);
        let instance = &self.instances[slot];
        let extra = &self.extras[slot];
        let worker = &mut self.workers[instance.worker()];
        self.worker_loads[instance.worker()] += (instance.serving.len() + extra.bound.len()) as u32;
        worker.freeing = worker.freeing.saturating_add(instance.freeing(&size, extra.used));
        if instance.takes_room() {
            self.take_room(slot, &size);
        }
        self.count_serving(slot);
        let instance = &self.instances[slot];
        if instance.may_give_up_room() {
            self.on_room(instance.worker());
        }
    }

    /// Takes up an instance's room on its worker.
    fn take_room(&mut self, slot: usize, size: &Size) {
        let is_abandonable = self.is_abandonable(slot);
        let instance = &self.instances[slot];
        let worker = &mut self.workers[instance.worker()];
        worker.instances += 1;
        worker.allocated += size.room;
        if instance.phase != Phase::Idle {
            worker.reserved += size.reservation;
        }
        if instance.is_evictable() {
            worker.evictable += 1;
            worker.evictable_resources += size.room;
            worker.idle.push(slot, &mut self.instances);
        } else if instance.is_preemptible() {
            worker.preemptible += size.room;
            worker.active.push(slot, &mut self.instances);
        } else if instance.phase == Phase::Preempting {
            worker.preempting += 1;
            worker.preempting_resources += size.room;
        } else if is_abandonable {
            worker.evictable += 1;
            worker.evictable_resources += size.room;
        }
    }

    /// The worker's part of [`Self::unlink`].
    pub(crate) fn unlink_worker(&mut self, slot: usize) {
        self.discount_serving(slot);
        let size = self.size(slot);
        let is_abandonable = self.is_abandonable(slot);
        let instance = &self.instances[slot];
        let extra = &self.extras[slot];
        let worker = &mut self.workers[instance.worker()];
        self.worker_loads[instance.worker()] -= (instance.serving.len() + extra.bound.len()) as u32;
        worker.freeing = worker.freeing.saturating_sub(instance.freeing(&size, extra.used));
        if !instance.takes_room() {
            return;
        }
        worker.instances -= 1;
        worker.allocated -= size.room;
        if instance.phase != Phase::Idle {
            worker.reserved -= size.reservation;
        }
        if instance.is_evictable() {
            worker.evictable -= 1;
            worker.evictable_resources -= size.room;
            worker.idle.remove(slot, &mut self.instances);
        } else if instance.is_preemptible() {
            worker.preemptible -= size.room;
            worker.active.remove(slot, &mut self.instances);
        } else if instance.phase == Phase::Preempting {
            worker.preempting -= 1;
            worker.preempting_resources -= size.room;
        } else if is_abandonable {
            worker.evictable -= 1;
            worker.evictable_resources -= size.room;
        }
    }

    /// Marks an idle instance as paused; its position in no list changes.
    pub(crate) fn set_paused(&mut self, slot: usize, how: Pause) {
        self.instances[slot].paused = Some(how);
        *self.counts.paused(how) += 1;
    }
}

impl Counts {
    /// Instances that are paused in this way.
    fn paused(&mut self, how: Pause) -> &mut usize {
        match how {
            Pause::Freeze => &mut self.frozen,
            Pause::ScaleDown => &mut self.scaled_down,
        }
    }
}

/// Whether further requests may be bound to an instance that has `bound` ones.
fn is_spare(instance: &Instance, bound: usize) -> bool {
    instance.phase == Phase::Starting
        && instance.retiring.is_none()
        && bound < instance.concurrency as usize
}

/// Counts an instance by its phase, or takes it out if `sign` is -1.
pub(crate) fn count_phase(counts: &mut Counts, instance: &Instance, sign: isize) {
    if let (Phase::Idle, Some(how)) = (instance.phase, instance.paused) {
        let paused = counts.paused(how);
        *paused = paused.wrapping_add_signed(sign);
    }
    let count = match instance.phase {
        Phase::Starting => &mut counts.starting,
        Phase::Idle => &mut counts.idle,
        Phase::Active | Phase::Preempting => &mut counts.busy,
        Phase::Stopping => &mut counts.stopping,
    };
    *count = count.wrapping_add_signed(sign);
}

/// Counts an instance to its function's, or takes it out if `sign` is -1.
fn count_function(function: &mut Function, instance: &Instance, bound: usize, sign: i32) {
    if instance.retiring.is_some() {
        // Only one that starts has any.
        let bound = sign * bound as i32;
        function.bound_to_retiring = function.bound_to_retiring.wrapping_add_signed(bound);
        return;
    }
    let count = match instance.phase {
        Phase::Starting => &mut function.starting,
        Phase::Idle => &mut function.idle,
        Phase::Active => &mut function.active,
        Phase::Preempting | Phase::Stopping => return,
    };
    *count = count.wrapping_add_signed(sign);
    let capacity = i64::from(sign) * i64::from(instance.concurrency);
    function.capacity = function.capacity.wrapping_add_signed(capacity);
    let serving = sign * instance.serving.len() as i32;
    function.serving = function.serving.wrapping_add_signed(serving);
}
