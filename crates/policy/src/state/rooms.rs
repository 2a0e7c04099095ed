//! Which workers have room, without a look at each.

use std::cell::RefCell;

use crate::Resources;

/// What still fits on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Room {
    pub(crate) resources: Resources,
    pub(crate) instances: u32,
}

impl Room {
    /// Whether an instance of this size fits.
    pub(crate) fn fits(self, allocation: Resources) -> bool {
        self.instances > 0 && allocation.fits(self.resources)
    }

    /// Whether nothing fits that does not fit in the other.
    fn is_within(self, other: Self) -> bool {
        self.instances <= other.instances && self.resources.fits(other.resources)
    }

    /// The least room in which fits what fits in one of both.
    fn max(self, other: Self) -> Self {
        Self {
            resources: Resources {
                cpu: self.resources.cpu.max(other.resources.cpu),
                memory: self.resources.memory.max(other.resources.memory),
            },
            instances: self.instances.max(other.instances),
        }
    }
}

/// Upper bounds of the room on each worker, by slot, and of ever larger groups of neighbours: a binary
/// tree whose root is at 1 and in which the children of `n` are `2 n` and `2 n + 1`.
///
/// A bound follows at once when room grows, and only once somebody has looked in vain when it shrinks:
/// each look pays for what shrank since the last one, and a policy that never looks for nothing, since
/// there are no bounds before the first look.
#[derive(Debug, Default)]
pub(crate) struct Rooms {
    bounds: RefCell<Vec<Room>>,
}

impl Rooms {
    /// Takes note that there may be more room in a slot.
    #[inline]
    pub(crate) fn raise(&mut self, slot: usize, room: impl FnOnce() -> Room) {
        let bounds = self.bounds.get_mut();
        if !bounds.is_empty() {
            raise_in(bounds, slot, room);
        }
    }

    /// The first of `slots` slots, from `from` on, in which an instance of this size fits; `room` says
    /// what room there is in a slot.
    pub(crate) fn find(
        &self,
        allocation: Resources,
        from: usize,
        slots: usize,
        room: impl Fn(usize) -> Room,
    ) -> Option<usize> {
        if from >= slots {
            return None;
        }
        let bounds = &mut *self.bounds.borrow_mut();
        if bounds.len() < 2 * slots {
            let most = Room { resources: Resources::UNBOUNDED, instances: u32::MAX };
            *bounds = vec![most; 2 * slots.next_power_of_two()];
        }
        let leaves = bounds.len() / 2;
        // From the root or a leaf on: to the first child of what may have room, else to the next node
        // that is neither an ancestor nor below one that was passed.
        let mut node = if from == 0 { 1 } else { leaves + from };
        loop {
            if bounds[node].fits(allocation) {
                if node < leaves {
                    node *= 2;
                    continue;
                }
                let slot = node - leaves;
                bounds[node] = if slot < slots { room(slot) } else { Room::default() };
                if bounds[node].fits(allocation) {
                    return Some(slot);
                }
            }
            while node % 2 == 1 {
                if node == 1 {
                    return None;
                }
                bounds[node / 2] = bounds[node - 1].max(bounds[node]);
                node /= 2;
            }
            node += 1;
        }
    }
}

/// Raises the bounds of a slot, and of all groups that it is in, to at least this room.
#[inline(never)]
fn raise_in(bounds: &mut Vec<Room>, slot: usize, room: impl FnOnce() -> Room) {
    let mut node = bounds.len() / 2 + slot;
    if node >= bounds.len() {
        // There are more workers than it was made for.
        bounds.clear();
        return;
    }
    let room = room();
    while node > 0 && !room.is_within(bounds[node]) {
        bounds[node] = bounds[node].max(room);
        node /= 2;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However room grows and shrinks, the slots found are those in which an instance fits.
        #[test]
        fn the_slots_found_are_those_with_room(
            steps in prop::collection::vec(
                (0..20_usize, 0..4_u64, 0..4_u64, 0..3_u32, any::<bool>()), 1..200,
            ),
        ) {
            let (mut rooms, mut slots) = (Rooms::default(), Vec::<Room>::new());
            for (slot, cpu, memory, instances, look) in steps {
                slots.resize(slots.len().max(slot + 1), Room::default());
                let allocation = Resources { cpu, memory };
                if look {
                    let mut found = Vec::new();
                    let mut from = 0;
                    let room = |slot: usize| slots[slot];
                    while let Some(slot) = rooms.find(allocation, from, slots.len(), room) {
                        found.push(slot);
                        from = slot + 1;
                    }
                    let fitting = (0..slots.len()).filter(|slot| slots[*slot].fits(allocation));
                    prop_assert_eq!(found, fitting.collect::<Vec<_>>());
                } else {
                    slots[slot] = Room { resources: allocation, instances };
                    rooms.raise(slot, || slots[slot]);
                }
            }
        }
    }
}
