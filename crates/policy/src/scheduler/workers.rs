//! Workers that join and leave.

use crate::{Capacity, Decision, Scheduler, StopReason, WorkerId};

impl Scheduler {
    pub(super) fn join(&mut self, id: WorkerId, capacity: Capacity, out: &mut Vec<Decision>) {
        match self.state.worker(id) {
            Some(slot) => {
                let before = self.state.workers[slot].capacity;
                self.state.limit -= u64::from(before.max_instances);
                self.state.set_capacity(slot, capacity);
                self.shrink(slot, out);
            }
            None => self.state.add_worker(id, capacity),
        }
        self.state.limit += u64::from(capacity.max_instances);
        self.is_room_new = true;
    }

    pub(super) fn drain(&mut self, id: WorkerId, out: &mut Vec<Decision>) {
        let Some(slot) = self.state.worker(id) else { return };
        let mut members: Vec<_> = self.state.workers[slot]
            .members
            .iter()
            .map(|member| (self.state.instances[*member as usize].id, *member as usize))
            .collect();
        members.sort_unstable();
        let members: Vec<_> = members.into_iter().map(|(_, member)| member).collect();
        let mut functions: Vec<_> = members
            .iter()
            .map(|member| self.state.instances[*member].function())
            .map(|function| (self.state.functions[function].extra.id, function))
            .collect();
        self.retire_members(&members, StopReason::Drained, out);
        self.join(id, Capacity::NONE, out);
        functions.sort_unstable();
        functions.dedup();
        for (_, function) in functions {
            // What waits for an instance that retires may be served elsewhere.
            self.serve(function, out);
        }
    }

    pub(super) fn lose_worker(&mut self, id: WorkerId, out: &mut Vec<Decision>) {
        let Some(slot) = self.state.hide_worker(id) else { return };
        let instances = self.state.workers[slot].members.iter();
        let mut instances: Vec<_> = instances
            .map(|slot| (self.state.instances[*slot as usize].id, *slot as usize))
            .collect();
        instances.sort_unstable();
        // None of these takes the place of another that was kept ready.
        for &(_, instance) in &instances {
            self.state.unlink(instance);
            self.state.instances[instance].retiring.get_or_insert(StopReason::Drained);
            self.state.link(instance);
        }
        let mut functions = Vec::with_capacity(instances.len());
        for (_, instance) in instances {
            let function = self.state.instances[instance].function();
            functions.push((self.state.functions[function].extra.id, function));
            self.drop_instance(instance, out);
        }
        self.state.free_worker(slot);
        functions.sort_unstable();
        functions.dedup();
        for (_, function) in functions {
            self.serve(function, out);
        }
        // What waits for room that there is nowhere now is rejected, and holds up nobody.
        self.is_room_new = true;
    }
}
