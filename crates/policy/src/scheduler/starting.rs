//! Starts of instances.

use crate::retention::Ahead;
use crate::scaling::Change;
use crate::state::Instance;
use crate::{Decision, FunctionId, Rejection, Scheduler, StopReason, View};

impl Scheduler {
    /// Binds waiting requests to instances that start anyway, and starts what the scaling finds
    /// missing.
    #[inline]
    pub(super) fn scale(&mut self, slot: usize, out: &mut Vec<Decision>) {
        if self.may_lack(slot) {
            self.scale_up(slot, out);
        }
    }

    /// Whether an instance of the function may have to be started, or a request of it to be served.
    #[expect(clippy::inline_always, reason = "half of a call would be to save registers")]
    #[inline(always)]
    pub(super) fn may_lack(&self, slot: usize) -> bool {
        self.starts_ahead || self.state.functions[slot].lacks_instances()
    }

    #[inline(never)]
    fn scale_up(&mut self, slot: usize, out: &mut Vec<Decision>) {
        while self.state.functions[slot].unbound_count > 0 {
            let Some((_, &spare)) = self.state.functions[slot].extra.spare.first_key_value() else {
                break;
            };
            self.state.bind(spare);
        }
        let view = View::new(&self.state);
        let function = view.function_at(slot);
        let starts = self.policies.scaling.starts(view, &mut self.random, &function);
        self.start_many(slot, starts, out);
    }

    /// Asks the scaling for changes without an event.
    pub(super) fn tick(&mut self, out: &mut Vec<Decision>) {
        let mut changes = std::mem::take(&mut self.changes);
        let view = View::new(&self.state);
        self.policies.scaling.on_tick(view, &mut self.random, &mut changes);
        for (function, change) in changes.drain(..) {
            match (self.state.function(function), change) {
                (Some(slot), Change::Start(count)) => self.start_many(slot, count, out),
                (Some(slot), Change::Stop(count)) => self.stop_many(slot, count, out),
                (None, _) => {}
            }
        }
        self.changes = changes;
        self.is_room_new = true;
    }

    /// Starts what is due ahead of its requests.
    pub(super) fn prewarm(&mut self, out: &mut Vec<Decision>) {
        let mut ahead = std::mem::take(&mut self.prewarmed);
        self.policies.retention.prewarm(View::new(&self.state), &mut ahead);
        for Ahead { function, count, on_hint } in ahead.drain(..) {
            match self.state.function(function) {
                Some(slot) if on_hint => self.start_on_hint(slot, count, out),
                Some(slot) => self.start_many(slot, count, out),
                None => {}
            }
        }
        self.prewarmed = ahead;
    }

    /// Starts so many instances on the account of hints, as far as there is room that nobody needs.
    fn start_on_hint(&mut self, slot: usize, count: u32, out: &mut Vec<Decision>) {
        for _ in 0..count {
            let function = &self.state.functions[slot];
            let is_ending = function.deleted || self.state.shutting_down;
            if is_ending
                || function.is_broken
                || function.instances() >= function.settings.max_instances
                || function.extra.on_hint >= function.settings.hint_instances
                || self.state.is_anything_waiting()
            {
                return;
            }
            let room = self.state.size_of(slot).room;
            let worker = self.place(slot);
            let spare = worker.filter(|worker| self.state.workers[*worker].room().fits(room));
            let Some(worker) = spare else { return };
            self.start(slot, worker, true, out);
        }
    }

    /// Starts what a connection is to begin.
    pub(super) fn connect(&mut self, function: FunctionId, out: &mut Vec<Decision>) {
        let Some(slot) = self.state.function(function) else { return };
        self.state.functions[slot].extra.connecting += 1;
        let view = View::new(&self.state);
        let function = view.function_at(slot);
        let starts = self.policies.connection.starts(view, &mut self.random, &function);
        if starts > 0 {
            self.start_many(slot, starts, out);
        }
    }

    /// Starts so many instances, as far as the function may have them and there is room.
    fn start_many(&mut self, slot: usize, starts: u32, out: &mut Vec<Decision>) {
        if starts == 0 && !self.state.functions[slot].is_parked {
            return;
        }
        let was_parked = self.state.unpark(slot);
        self.start_up_to(slot, starts, out);
        // Others that waited behind it may have their turn.
        self.is_room_new |= was_parked && !self.state.functions[slot].is_parked;
    }

    fn start_up_to(&mut self, slot: usize, starts: u32, out: &mut Vec<Decision>) {
        for _ in 0..starts {
            let function = &self.state.functions[slot];
            let needed = function.unbound_count > 0;
            let is_ending = function.deleted || self.state.shutting_down;
            // Those that end with their function serve only what is left of its requests.
            if !needed && (is_ending || function.is_broken)
                || !is_ending && function.instances() >= function.settings.max_instances
            {
                return;
            }
            let mine = (function.start_key(), slot);
            // Nobody waits for an instance that is only to be kept ready: room that was made for an
            // interactive request is not for it.
            let is_first = self.state.first_parked().is_none_or(|first| mine <= first)
                && (needed || !self.state.is_interactive_waiting());
            let worker = if is_first { self.place(slot) } else { None };
            match worker {
                Some(worker) => self.start(slot, worker, false, out),
                None if self.could_ever_start(slot) => return self.state.park(slot),
                None => return self.reject_unbound(slot, out),
            }
        }
    }

    fn place(&mut self, slot: usize) -> Option<usize> {
        let view = View::new(&self.state);
        let function = view.function_at(slot);
        let worker = self.policies.placement.place(view, &mut self.random, &function)?;
        self.state.worker(worker)
    }

    /// Whether any worker, if it were empty, could hold an instance; without workers one may join.
    fn could_ever_start(&self, slot: usize) -> bool {
        View::new(&self.state).could_ever_hold(self.state.functions[slot].settings.allocation)
    }

    fn reject_unbound(&mut self, slot: usize, out: &mut Vec<Decision>) {
        while let Some(request) = self.state.pop_unbound(slot) {
            self.leave(slot, request.key);
            let reason = Rejection::TooLarge;
            out.push(Decision::Reject { request: request.id, reason });
        }
    }

    fn start(&mut self, function: usize, worker: usize, on_hint: bool, out: &mut Vec<Decision>) {
        let known = &self.state.functions[function];
        let settings = known.settings;
        let name = known.extra.id;
        let retiring = if self.state.shutting_down {
            Some(StopReason::Shutdown)
        } else {
            known.deleted.then_some(StopReason::Delete)
        };
        self.make_room(worker, self.state.size_of(function).room, out);
        let instance = Instance::new(function, worker, &settings, retiring, self.state.now);
        let slot = self.state.add_instance(instance);
        if on_hint {
            self.state.hold(slot);
        }
        self.state.bind_unlinked(slot);
        self.state.link(slot);
        out.push(Decision::Start {
            instance: self.state.instances[slot].id,
            function: name,
            worker: self.state.workers[worker].id,
        });
    }

    /// Starts what waits for room, the first before any other is tried.
    pub(super) fn start_parked(&mut self, out: &mut Vec<Decision>) {
        while let Some((key, slot)) = self.state.first_parked() {
            self.serve(slot, out);
            if self.state.first_parked().is_some_and(|first| first <= (key, slot)) {
                return;
            }
        }
    }
}
