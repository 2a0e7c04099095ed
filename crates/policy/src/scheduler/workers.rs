//! Workers that join and leave.

use crate::state::Worker;
use crate::{Capacity, Decision, Scheduler, WorkerId};

impl Scheduler {
    pub(super) fn join(&mut self, id: WorkerId, capacity: Capacity, out: &mut Vec<Decision>) {
        match self.state.worker(id) {
            Some(slot) => {
                let worker = &mut self.state.workers[slot];
                self.state.limit -= u64::from(worker.capacity.max_instances);
                worker.capacity = capacity;
                self.shrink(slot, out);
            }
            None => {
                let slot = self.state.workers.insert(Worker::new(id, capacity));
                self.state.workers_by_id.push((id, slot));
                self.state.workers_by_id.sort_unstable();
            }
        }
        self.state.limit += u64::from(capacity.max_instances);
        self.is_room_new = true;
    }

    pub(super) fn lose_worker(&mut self, id: WorkerId, out: &mut Vec<Decision>) {
        let Some(slot) = self.state.worker(id) else { return };
        self.state.workers_by_id.retain(|(known, _)| *known != id);
        let worker = &self.state.workers[slot];
        self.state.limit -= u64::from(worker.capacity.max_instances);
        let instances = worker.members.iter();
        let mut instances: Vec<_> = instances
            .map(|slot| (self.state.instances[*slot as usize].id, *slot as usize))
            .collect();
        instances.sort_unstable();
        let mut functions = Vec::with_capacity(instances.len());
        for (_, instance) in instances {
            let function = self.state.instances[instance].function();
            functions.push((self.state.functions[function].id, function));
            self.drop_instance(instance, out);
        }
        self.state.workers.remove(slot);
        functions.sort_unstable();
        functions.dedup();
        for (_, function) in functions {
            self.serve(function, out);
        }
    }
}
