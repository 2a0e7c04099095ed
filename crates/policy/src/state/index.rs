//! The slots of functions by their ids.

use rustc_hash::FxHashMap;

use crate::FunctionId;

/// So many ids that follow one another share a page: a cache line.
const PAGE: u64 = 16;

/// No slot.
const NONE: u32 = u32::MAX;

/// Slots by id. Any ids will do, but drivers number functions, mostly: then all take up 5 bytes each.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Where the page of each number is in `pages`.
    numbers: FxHashMap<u64, u32>,
    pages: Vec<Page>,
    /// Pages without slots.
    free: Vec<u32>,
}

#[derive(Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Page([u32; PAGE as usize]);

impl Page {
    const EMPTY: Self = Self([NONE; PAGE as usize]);
}

impl Index {
    /// The slot of an id.
    pub(crate) fn get(&self, id: FunctionId) -> Option<usize> {
        let page = *self.numbers.get(&(id.0 / PAGE))?;
        let slot = self.pages[page as usize].0[(id.0 % PAGE) as usize];
        (slot != NONE).then_some(slot as usize)
    }

    /// Adds an id that it does not hold.
    pub(crate) fn insert(&mut self, id: FunctionId, slot: usize) {
        let page = *self.numbers.entry(id.0 / PAGE).or_insert_with(|| {
            self.free.pop().unwrap_or_else(|| {
                self.pages.push(Page::EMPTY);
                (self.pages.len() - 1) as u32
            })
        });
        self.pages[page as usize].0[(id.0 % PAGE) as usize] = slot as u32;
    }

    /// Removes an id that it holds.
    pub(crate) fn remove(&mut self, id: FunctionId) {
        let Some(&page) = self.numbers.get(&(id.0 / PAGE)) else { return };
        let slots = &mut self.pages[page as usize];
        slots.0[(id.0 % PAGE) as usize] = NONE;
        if *slots == Page::EMPTY {
            self.numbers.remove(&(id.0 / PAGE));
            self.free.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is added and removed, the index knows what a map does.
        #[test]
        fn the_index_is_a_map(
            steps in prop::collection::vec((0..80_u64, any::<bool>(), any::<bool>()), 1..200),
        ) {
            let (mut index, mut map) = (Index::default(), HashMap::new());
            for (slot, (id, far, add)) in steps.into_iter().enumerate() {
                let id = FunctionId(if far { u64::MAX - id } else { id });
                if add && !map.contains_key(&id) {
                    index.insert(id, slot);
                    map.insert(id, slot);
                } else {
                    index.remove(id);
                    map.remove(&id);
                }
                for id in (0..80).flat_map(|id| [FunctionId(id), FunctionId(u64::MAX - id)]) {
                    prop_assert_eq!(index.get(id), map.get(&id).copied());
                }
                prop_assert!(index.pages.len() <= 12, "free pages are used again");
                prop_assert_eq!(index.numbers.len(), index.pages.len() - index.free.len());
            }
        }
    }
}
