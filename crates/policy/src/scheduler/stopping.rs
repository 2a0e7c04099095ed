//! Idle instances, until they are paused and stopped; and the end of functions and of everything.

use crate::cpu::CpuEvent;
use crate::retention::Schedule;
use crate::state::Phase;
use crate::{Decision, FunctionId, Rejection, Scheduler, StopReason, View};

impl Scheduler {
    /// The instance, which is not linked, has nothing to do: it retires, or idles and may serve who
    /// waits.
    pub(super) fn free(&mut self, slot: usize, out: &mut Vec<Decision>) {
        let instance = &mut self.state.instances[slot];
        if let Some(reason) = instance.retiring {
            self.state.link(slot);
            self.stop(slot, reason, out);
            return;
        }
        instance.phase = Phase::Idle;
        instance.since = self.state.now;
        let (function, kept) = (instance.function(), instance.kept);
        if !kept && self.state.may_keep_more(function) {
            self.state.set_kept(slot, true);
            self.state.release(slot);
        }
        self.state.link(slot);
        self.idle(slot, out);
    }

    /// The instance has become idle.
    #[expect(clippy::inline_always, reason = "half of a call would be to save registers")]
    #[inline(always)]
    pub(super) fn idle(&mut self, slot: usize, out: &mut Vec<Decision>) {
        self.plan(slot, out);
        let view = View::new(&self.state);
        self.policies.eviction.on_idle(view, &view.instance_at(slot));
        self.assign_cpus(slot, CpuEvent::Idle, out);
        self.is_room_new = true;
        let instance = &self.state.instances[slot];
        let worker = instance.worker();
        if self.state.workers[worker].is_overfull()
            && self.state.functions[instance.function()].waiting() == 0
        {
            self.shrink(worker, out);
        }
    }

    /// Decides what becomes of an idle instance, and sets its timer.
    #[expect(clippy::inline_always, reason = "half of a call would be to save registers")]
    #[inline(always)]
    fn plan(&mut self, slot: usize, out: &mut Vec<Decision>) {
        let view = View::new(&self.state);
        let instance = view.instance_at(slot);
        let mut schedule = self.policies.retention.schedule(view, &mut self.random, &instance);
        if instance.is_on_hint() {
            let until = self.policies.retention.hold(view, &instance);
            schedule.stop_at = until.unwrap_or(view.now());
            out.push(Decision::Hold { instance: instance.id() });
        }
        self.carry_on(slot, schedule);
    }

    /// Has an idle instance be paused and removed as scheduled.
    #[expect(clippy::inline_always, reason = "half of a call would be to save registers")]
    #[inline(always)]
    fn carry_on(&mut self, slot: usize, schedule: Schedule) {
        let instance = &mut self.state.instances[slot];
        instance.stop_at = schedule.stop_at;
        let (kept, paused) = (instance.kept, instance.paused.is_some());
        let pause = schedule.pause.filter(|(at, _)| !paused && (kept || *at < schedule.stop_at));
        instance.pause = pause.map(|(_, how)| how);
        match pause {
            Some((at, _)) => self.timers.set(&mut self.state.instances, slot, at),
            None => self.set_stop_timer(slot),
        }
    }

    /// Has an idle instance be removed when its time comes, if it may be.
    #[expect(clippy::inline_always, reason = "half of a call would be to save registers")]
    #[inline(always)]
    fn set_stop_timer(&mut self, slot: usize) {
        let instance = &self.state.instances[slot];
        let at = instance.stop_at;
        if instance.kept {
            self.timers.clear(&mut self.state.instances, slot);
        } else {
            self.timers.set(&mut self.state.instances, slot, at);
        }
    }

    /// The time has come to pause or stop an idle instance.
    pub(super) fn idle_timer(&mut self, slot: usize, out: &mut Vec<Decision>) {
        let instance = &self.state.instances[slot];
        if !instance.kept && instance.stop_at <= self.state.now {
            if !self.hold(slot, out) {
                self.stop(slot, StopReason::KeepAlive, out);
            }
        } else if let Some(how) = instance.pause {
            let id = instance.id;
            self.state.set_paused(slot, how);
            self.set_stop_timer(slot);
            out.push(Decision::Pause { instance: id, how });
        }
    }

    /// Keeps an idle instance, whose time is over, on the account of hints; false if none says so.
    fn hold(&mut self, slot: usize, out: &mut Vec<Decision>) -> bool {
        if !self.reads_hints {
            return false;
        }
        let view = View::new(&self.state);
        let instance = view.instance_at(slot);
        let until = self.policies.retention.hold(view, &instance);
        let Some(stop_at) = until.filter(|until| *until > view.now()) else { return false };
        let pause = self.policies.retention.schedule(view, &mut self.random, &instance).pause;
        if !instance.is_on_hint() {
            out.push(Decision::Hold { instance: instance.id() });
            self.state.hold(slot);
        }
        self.carry_on(slot, Schedule { pause, stop_at });
        true
    }

    /// The settings of its function have changed: an idle instance has another schedule, and may be
    /// kept ready or not any more.
    pub(super) fn reconsider_idle(&mut self, slot: usize, out: &mut Vec<Decision>) {
        let instance = &self.state.instances[slot];
        let function = &self.state.functions[instance.function()];
        let kept = instance.kept;
        let changes = if kept {
            function.kept > function.settings.min_instances
        } else {
            instance.phase == Phase::Idle && self.state.may_keep_more(instance.function())
        };
        if changes {
            self.state.unlink_worker(slot);
            self.state.set_kept(slot, !kept);
            if !kept && self.state.instances[slot].on_hint {
                self.state.release(slot);
                let instance = self.state.instances[slot].id;
                out.push(Decision::Release { instance });
            }
            self.state.link_worker(slot);
        }
        if self.state.instances[slot].phase == Phase::Idle {
            self.plan(slot, out);
            if changes && kept {
                let view = View::new(&self.state);
                self.policies.eviction.on_idle(view, &view.instance_at(slot));
            }
        }
    }

    /// An instance that was kept ready is gone: an idle one takes its place, if there is one.
    pub(super) fn keep_another(&mut self, function: usize, out: &mut Vec<Decision>) {
        let mut available = self.state.functions[function].available.iter(&self.state.instances);
        let other = available.find(|slot| self.state.instances[*slot].is_evictable());
        if let Some(slot) = other {
            self.reconsider_idle(slot, out);
        }
    }

    /// Marks all instances of a function to be stopped, and stops those that are idle.
    pub(super) fn retire(&mut self, slot: usize, reason: StopReason, out: &mut Vec<Decision>) {
        let function = &self.state.functions[slot];
        // The idle ones first, in the order in which they would serve.
        let mut members: Vec<usize> = function.available.iter(&self.state.instances).collect();
        members.extend(function.extra.members.iter().map(|member| *member as usize));
        self.retire_members(&members, reason, out);
    }

    /// Marks these instances to be stopped, and stops those that are idle, in this order.
    pub(super) fn retire_members(
        &mut self,
        members: &[usize],
        reason: StopReason,
        out: &mut Vec<Decision>,
    ) {
        for &member in members {
            if self.state.instances[member].phase == Phase::Idle {
                continue;
            }
            self.state.unlink(member);
            self.state.instances[member].retiring.get_or_insert(reason);
            self.state.set_kept(member, false);
            self.state.link(member);
        }
        for &member in members {
            if self.state.instances[member].phase == Phase::Idle {
                self.stop(member, reason, out);
            }
        }
    }

    /// Stops so many instances of a function, as far as they are idle and not kept ready.
    pub(super) fn stop_many(&mut self, slot: usize, stops: u32, out: &mut Vec<Decision>) {
        let available = self.state.functions[slot].available.iter(&self.state.instances);
        let idle = available.filter(|slot| self.state.instances[*slot].is_evictable());
        for instance in idle.take(stops as usize).collect::<Vec<_>>() {
            self.stop(instance, StopReason::ScaledDown, out);
        }
    }

    /// Stops an instance that serves nothing and is linked.
    pub(super) fn stop(&mut self, slot: usize, reason: StopReason, out: &mut Vec<Decision>) {
        self.timers.clear(&mut self.state.instances, slot);
        self.state.unlink(slot);
        self.state.release(slot);
        let instance = &mut self.state.instances[slot];
        instance.phase = Phase::Stopping;
        instance.retiring.get_or_insert(reason);
        let id = instance.id;
        self.state.set_kept(slot, false);
        self.state.link(slot);
        self.assign_cpus(slot, CpuEvent::Gone, out);
        self.is_room_new = true;
        out.push(Decision::Stop { instance: id, reason });
    }

    pub(super) fn delete(&mut self, id: FunctionId, out: &mut Vec<Decision>) {
        let Some(slot) = self.state.function(id) else { return };
        self.state.functions[slot].deleted = true;
        self.policies.retention.on_deleted(id);
        self.reject_backlog(slot, Rejection::NoFunction, out);
        // Others may have waited behind those.
        self.is_room_new = true;
        self.retire(slot, StopReason::Delete, out);
        self.serve(slot, out);
    }

    pub(super) fn shut_down(&mut self, out: &mut Vec<Decision>) {
        self.state.shutting_down = true;
        let functions = self.state.functions();
        let mut functions: Vec<_> =
            functions.map(|slot| (self.state.functions[slot].extra.id, slot)).collect();
        functions.sort_unstable();
        for (_, slot) in functions {
            self.reject_backlog(slot, Rejection::ShuttingDown, out);
            self.retire(slot, StopReason::Shutdown, out);
            self.state.forget(slot);
        }
    }
}
