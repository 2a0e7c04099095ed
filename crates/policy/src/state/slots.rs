//! Items in slots, which others use once they are free.

use std::ops::{Index, IndexMut};

/// Items by slot. A free slot holds an empty item, so that nobody has to
/// look whether it is free.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Slots<T> {
    /// Items.
    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// The item in the slot, which is empty if the slot is free; None if there was none ever.
    pub(crate) fn get(&self, slot: usize) -> Option<&T> {
        self.items.get(slot)
    }

    /// The slot that the next item gets: the last one to become free, or a new one.
    pub(crate) fn next_slot(&self) -> usize {
        self.free.last().map_or(self.items.len(), |slot| *slot as usize)
    }

    /// Adds an item; its slot.
    pub(crate) fn insert(&mut self, item: T) -> usize {
        let slot = self.next_slot();
        if self.free.pop().is_some() {
            self.items[slot] = item;
        } else {
            self.items.push(item);
        }
        slot
    }

    /// Takes the item out of a slot that is not free.
    pub(crate) fn remove(&mut self, slot: usize) -> T {
        self.free.push(slot as u32);
        std::mem::take(&mut self.items[slot])
    }
}

impl<T> Index<usize> for Slots<T> {
    type Output = T;

    fn index(&self, slot: usize) -> &T {
        &self.items[slot]
    }
}

impl<T> IndexMut<usize> for Slots<T> {
    fn index_mut(&mut self, slot: usize) -> &mut T {
        &mut self.items[slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_slot_to_become_free_is_used_first() {
        let mut slots = Slots::default();
        assert_eq!([7, 8, 9].map(|item| slots.insert(item)), [0, 1, 2]);
        assert_eq!((slots.remove(0), slots.remove(2), slots.len()), (7, 9, 1));
        assert_eq!((slots.get(2), slots.get(3), slots.next_slot()), (Some(&0), None, 2));
        assert_eq!([4, 5, 6].map(|item| slots.insert(item)), [2, 0, 3]);
        assert_eq!((slots[0], slots[1], slots[2], slots[3], slots.len()), (5, 8, 4, 6, 4));
    }
}
