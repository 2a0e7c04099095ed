//! Queues from which slots leave anywhere, in constant time and in memory that lies together.

use std::collections::VecDeque;

/// A position that a slot has left.
const NONE: u32 = u32::MAX;

/// More gaps than this, and than slots, are closed.
const MAX_GAPS: usize = 32;

/// Slots in the order in which they came. Each has a ticket, by which it leaves; who leaves from
/// within leaves a gap, and there are never gaps at the ends.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    slots: VecDeque<u32>,
    /// The ticket of the first.
    first: u64,
    len: usize,
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a slot at the end, and returns its ticket.
    pub(crate) fn push(&mut self, slot: usize) -> u64 {
        self.slots.push_back(slot as u32);
        self.len += 1;
        self.first + self.slots.len() as u64 - 1
    }

    /// Takes out the slot of the ticket, which must be in the queue.
    pub(crate) fn remove(&mut self, ticket: u64) {
        self.slots[(ticket - self.first) as usize] = NONE;
        self.len -= 1;
        while self.slots.back() == Some(&NONE) {
            self.slots.pop_back();
        }
        while self.slots.front() == Some(&NONE) {
            self.slots.pop_front();
            self.first += 1;
        }
    }

    /// Whether the gaps are worth closing.
    pub(crate) fn is_sparse(&self) -> bool {
        self.slots.len() > 2 * self.len + MAX_GAPS
    }

    /// Closes the gaps, and reports the new ticket of each slot.
    pub(crate) fn compact(&mut self, mut moved: impl FnMut(usize, u64)) {
        self.slots.retain(|slot| *slot != NONE);
        for (slot, ticket) in self.slots.iter().zip(self.first..) {
            moved(*slot as usize, ticket);
        }
    }

    /// Its slots, from the front or the back.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + use<'_> {
        self.slots.iter().filter(|slot| **slot != NONE).map(|slot| *slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_from_anywhere_and_the_order_stays() {
        let mut queue = Queue::default();
        let tickets: Vec<u64> = [4, 0, 2, 7].into_iter().map(|slot| queue.push(slot)).collect();
        queue.remove(tickets[1]);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [4, 2, 7]);
        queue.remove(tickets[0]);
        queue.remove(tickets[3]);
        let again = queue.push(9);
        assert_eq!(queue.iter().rev().collect::<Vec<_>>(), [9, 2]);
        queue.remove(tickets[2]);
        queue.remove(again);
        assert!(queue.is_empty() && queue.slots.is_empty());
    }

    #[test]
    fn gaps_are_closed() {
        let mut queue = Queue::default();
        let mut tickets: Vec<u64> = (0..1_000).map(|slot| queue.push(slot)).collect();
        for slot in 1..999 {
            queue.remove(tickets[slot]);
            if queue.is_sparse() {
                queue.compact(|slot, ticket| tickets[slot] = ticket);
            }
        }
        assert!(queue.slots.len() <= 2 * 2 + MAX_GAPS);
        assert_eq!(queue.iter().collect::<Vec<_>>(), [0, 999]);
        queue.remove(tickets[999]);
        queue.remove(tickets[0]);
        assert!(queue.is_empty());
    }
}
