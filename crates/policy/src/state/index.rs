//! The slots of functions by their ids.

use rustc_hash::FxHashMap;

use crate::FunctionId;

/// So many ids that follow one another share a page: a cache line.
const PAGE: u64 = 16;

/// No slot, or no page.
const NONE: u32 = u32::MAX;

/// Pages of lower numbers than this are found without a hash.
const LOW: u64 = 1 << 16;

/// Slots by id. Any ids will do, but drivers number functions, mostly: then all take up 5 bytes each.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Where the pages of low numbers are in `pages`, as far as there are any.
    low: Vec<u32>,
    /// Where the page of each other number is.
    high: FxHashMap<u64, u32>,
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
        let page = self.page(id.0 / PAGE)?;
        let slot = self.pages.get(page as usize)?.0[(id.0 % PAGE) as usize];
        (slot != NONE).then_some(slot as usize)
    }

    /// Where the page of this number is, [`NONE`] if it has been removed.
    fn page(&self, number: u64) -> Option<u32> {
        if number < LOW {
            self.low.get(number as usize).copied()
        } else {
            self.high.get(&number).copied()
        }
    }

    /// Says where the page of this number is.
    fn set_page(&mut self, number: u64, page: u32) {
        if number < LOW {
            let number = number as usize;
            self.low.resize(self.low.len().max(number + 1), NONE);
            self.low[number] = page;
        } else if page == NONE {
            self.high.remove(&number);
        } else {
            self.high.insert(number, page);
        }
    }

    /// All slots, in an order that follows from what was added and removed.
    pub(crate) fn slots(&self) -> impl Iterator<Item = usize> {
        let slots = self.pages.iter().flat_map(|page| page.0);
        slots.filter(|slot| *slot != NONE).map(|slot| slot as usize)
    }

    /// Adds an id that it does not hold.
    pub(crate) fn insert(&mut self, id: FunctionId, slot: usize) {
        let number = id.0 / PAGE;
        let known = self.page(number).filter(|page| *page != NONE);
        let page = known.or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.pages.push(Page::EMPTY);
            (self.pages.len() - 1) as u32
        });
        if known.is_none() {
            self.set_page(number, page);
        }
        self.pages[page as usize].0[(id.0 % PAGE) as usize] = slot as u32;
    }

    /// Removes an id that it holds.
    pub(crate) fn remove(&mut self, id: FunctionId) {
        let number = id.0 / PAGE;
        let Some(page) = self.page(number) else { return };
        let Some(slots) = self.pages.get_mut(page as usize) else { return };
        slots.0[(id.0 % PAGE) as usize] = NONE;
        if *slots == Page::EMPTY {
            self.set_page(number, NONE);
            self.free.push(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

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
                let low = index.low.iter().filter(|page| **page != NONE).count();
                prop_assert_eq!(low + index.high.len(), index.pages.len() - index.free.len());
                let slots: HashSet<usize> = index.slots().collect();
                prop_assert_eq!(slots, map.values().copied().collect::<HashSet<_>>());
            }
        }
    }
}
