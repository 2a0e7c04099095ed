//! What is due, in order of time, and at the same time in the order in which it was planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use uncia_policy::{InstanceId, Nanos};

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// An instance that was started is ready.
    Ready(InstanceId),
    /// A phase on the worker ends.
    Phase(usize),
    /// The worker fails, for so long.
    Failure(usize, Nanos),
    /// The worker is back.
    Recovery(usize),
    /// The scheduler is to be woken.
    Wake,
    /// The workers give account.
    Account,
}

/// The events to come: phases in a heap of one entry a worker, which moves as often as what runs there
/// changes, and all else, which stays as it was planned, in another.
#[derive(Debug)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(Nanos, u64, Due)>>,
    phases: Phases,
    planned: u64,
}

impl Events {
    pub(crate) fn new(workers: usize) -> Self {
        Self { heap: BinaryHeap::new(), phases: Phases::new(workers), planned: 0 }
    }

    pub(crate) fn plan(&mut self, at: Nanos, due: Due) {
        self.planned += 1;
        self.heap.push(Reverse((at, self.planned, due)));
    }

    /// Says when the next phase on a worker ends, if one does; what was said before counts no more.
    pub(crate) fn plan_phase(&mut self, worker: usize, at: Option<Nanos>) {
        match at {
            Some(at) => {
                self.planned += 1;
                self.phases.set(worker, (at, self.planned));
            }
            None => self.phases.clear(worker),
        }
    }

    /// Workers on which a phase is going to end.
    pub(crate) fn phases(&self) -> usize {
        self.phases.heap.len()
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let planned = self.heap.peek().map(|Reverse((at, ..))| *at);
        let phase = self.phases.first().map(|((at, _), _)| at);
        planned.into_iter().chain(phase).min()
    }

    pub(crate) fn pop(&mut self) -> Option<(Nanos, Due)> {
        let planned = self.heap.peek().map(|Reverse((at, number, _))| (*at, *number));
        match self.phases.first() {
            Some((key, worker)) if planned.is_none_or(|planned| key < planned) => {
                self.phases.clear(worker);
                Some((key.0, Due::Phase(worker)))
            }
            _ => self.heap.pop().map(|Reverse((at, _, due))| (at, due)),
        }
    }
}

/// A time, and how much was planned before.
type Key = (Nanos, u64);

const NONE: u32 = u32::MAX;

/// A binary heap of workers of which each knows where it is.
#[derive(Debug)]
struct Phases {
    heap: Vec<(Key, u32)>,
    /// Where each worker is in the heap.
    positions: Vec<u32>,
}

impl Phases {
    fn new(workers: usize) -> Self {
        Self { heap: Vec::with_capacity(workers), positions: vec![NONE; workers] }
    }

    fn first(&self) -> Option<(Key, usize)> {
        self.heap.first().map(|(key, worker)| (*key, *worker as usize))
    }

    fn set(&mut self, worker: usize, key: Key) {
        let position = self.positions[worker];
        if position == NONE {
            self.heap.push((key, worker as u32));
            self.rise(self.heap.len() - 1);
        } else {
            let before = std::mem::replace(&mut self.heap[position as usize].0, key);
            if key < before {
                self.rise(position as usize);
            } else {
                self.sink(position as usize);
            }
        }
    }

    fn clear(&mut self, worker: usize) {
        let position = std::mem::replace(&mut self.positions[worker], NONE);
        if position == NONE {
            return;
        }
        let position = position as usize;
        self.heap.swap_remove(position);
        if position < self.heap.len() {
            self.positions[self.heap[position].1 as usize] = position as u32;
            self.sink(position);
            self.rise(position);
        }
    }

    /// Moves an entry towards the first as long as it comes before its parent.
    fn rise(&mut self, mut position: usize) {
        let entry = self.heap[position];
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].0 <= entry.0 {
                break;
            }
            self.put(position, self.heap[parent]);
            position = parent;
        }
        self.put(position, entry);
    }

    /// Moves an entry away from the first as long as one of its children comes before it.
    fn sink(&mut self, mut position: usize) {
        let entry = self.heap[position];
        loop {
            let mut child = 2 * position + 1;
            if child >= self.heap.len() {
                break;
            }
            if child + 1 < self.heap.len() && self.heap[child + 1].0 < self.heap[child].0 {
                child += 1;
            }
            if entry.0 <= self.heap[child].0 {
                break;
            }
            self.put(position, self.heap[child]);
            position = child;
        }
        self.put(position, entry);
    }

    fn put(&mut self, position: usize, entry: (Key, u32)) {
        self.heap[position] = entry;
        self.positions[entry.1 as usize] = position as u32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is planned and moved, things come up in order of time, then of planning.
        #[test]
        fn events_come_up_in_order(
            steps in prop::collection::vec((0..6_usize, 0..20_u64, 0..4_u32), 1..200),
        ) {
            let mut events = Events::new(6);
            let mut known: Vec<(Key, Due)> = Vec::new();
            for (worker, at, step) in steps {
                let planned = events.planned + 1;
                match step {
                    0 => {
                        events.plan(at, Due::Recovery(worker));
                        known.push(((at, planned), Due::Recovery(worker)));
                    }
                    1 | 2 => {
                        known.retain(|(_, due)| *due != Due::Phase(worker));
                        events.plan_phase(worker, (step == 1).then_some(at));
                        if step == 1 {
                            known.push(((at, planned), Due::Phase(worker)));
                        }
                    }
                    _ => {
                        known.sort_unstable();
                        let next = (!known.is_empty()).then(|| known.remove(0));
                        prop_assert_eq!(events.next(), next.map(|((at, _), _)| at));
                        prop_assert_eq!(events.pop(), next.map(|((at, _), due)| (at, due)));
                    }
                }
            }
        }
    }
}
