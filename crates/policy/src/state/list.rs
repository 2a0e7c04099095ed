//! Lists of instances, any of which leaves in constant time.

use std::marker::PhantomData;

use crate::state::Instance;
use crate::state::slots::Slots;

/// No slot.
const NONE: u32 = u32::MAX;

/// The neighbours of an instance in a list, which mean something as long as it is in one: the last of
/// a list has any next one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
}

impl Links {
    /// Those of an instance that is in no list.
    pub(crate) const NONE: Self = Self { previous: NONE, next: NONE };
}

/// Lists of which an instance is in one at most.
pub(crate) trait Kind {
    /// The instance's neighbours in its list.
    fn links(instance: &Instance) -> &Links;

    /// The same, to be changed.
    fn links_mut(instance: &mut Instance) -> &mut Links;
}

/// Lists of instances of a function.
#[derive(Debug)]
pub(crate) struct OfFunction;

impl Kind for OfFunction {
    fn links(instance: &Instance) -> &Links {
        &instance.function_links
    }

    fn links_mut(instance: &mut Instance) -> &mut Links {
        &mut instance.function_links
    }
}

/// Lists of instances on a worker.
#[derive(Debug)]
pub(crate) struct OfWorker;

impl Kind for OfWorker {
    fn links(instance: &Instance) -> &Links {
        &instance.worker_links
    }

    fn links_mut(instance: &mut Instance) -> &mut Links {
        &mut instance.worker_links
    }
}

/// Slots of instances in the order in which they came.
///
/// What changes only writes to the neighbours: nobody has to wait until their memory is read.
#[derive(Debug)]
pub(crate) struct List<K> {
    first: u32,
    last: u32,
    kind: PhantomData<K>,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self { first: NONE, last: NONE, kind: PhantomData }
    }
}

impl<K: Kind> List<K> {
    pub(crate) fn is_empty(&self) -> bool {
        self.last == NONE
    }

    /// The last slot.
    pub(crate) fn last(&self) -> Option<usize> {
        (self.last != NONE).then_some(self.last as usize)
    }

    /// Adds a slot at the end.
    pub(crate) fn push(&mut self, slot: usize, instances: &mut Slots<Instance>) {
        let previous = std::mem::replace(&mut self.last, slot as u32);
        K::links_mut(&mut instances[slot]).previous = previous;
        match previous {
            NONE => self.first = slot as u32,
            previous => K::links_mut(&mut instances[previous as usize]).next = slot as u32,
        }
    }

    /// Takes out a slot, which must be in the list.
    pub(crate) fn remove(&mut self, slot: usize, instances: &mut Slots<Instance>) {
        let Links { previous, next } = *K::links(&instances[slot]);
        let is_last = self.last == slot as u32;
        if is_last {
            self.last = previous;
        } else {
            K::links_mut(&mut instances[next as usize]).previous = previous;
        }
        if previous == NONE {
            self.first = if is_last { NONE } else { next };
        } else if !is_last {
            K::links_mut(&mut instances[previous as usize]).next = next;
        }
    }

    /// Moves a slot of the list to its end.
    pub(crate) fn move_to_end(&mut self, slot: usize, instances: &mut Slots<Instance>) {
        if self.last != slot as u32 {
            self.remove(slot, instances);
            self.push(slot, instances);
        }
    }

    /// The slots, from the first or the last.
    pub(crate) fn iter<'a>(&self, instances: &'a Slots<Instance>) -> Iter<'a, K> {
        Iter { first: self.first, last: self.last, instances, kind: PhantomData }
    }
}

/// What is left of a list to iterate over.
#[derive(Debug)]
pub(crate) struct Iter<'a, K> {
    first: u32,
    last: u32,
    instances: &'a Slots<Instance>,
    kind: PhantomData<K>,
}

impl<K: Kind> Iter<'_, K> {
    /// Takes `slot`, which is at one of the ends; the others are from `ends` on, unless it was the
    /// last one.
    fn take(&mut self, slot: u32, ends: impl FnOnce(&Links) -> (u32, u32)) -> Option<usize> {
        if slot == NONE {
            return None;
        }
        (self.first, self.last) = if self.first == self.last {
            (NONE, NONE)
        } else {
            ends(K::links(&self.instances[slot as usize]))
        };
        Some(slot as usize)
    }
}

impl<K: Kind> Iterator for Iter<'_, K> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let last = self.last;
        self.take(self.first, |links| (links.next, last))
    }
}

impl<K: Kind> DoubleEndedIterator for Iter<'_, K> {
    fn next_back(&mut self) -> Option<usize> {
        let first = self.first;
        self.take(self.last, |links| (first, links.previous))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_from_anywhere_and_the_order_stays() {
        let (mut instances, mut list) = (Slots::default(), List::<OfWorker>::default());
        for _ in 0..5 {
            instances.insert(Instance::default());
        }
        for slot in [4, 0, 2, 3] {
            list.push(slot, &mut instances);
        }
        list.remove(0, &mut instances);
        assert_eq!(list.iter(&instances).collect::<Vec<_>>(), [4, 2, 3]);
        list.remove(4, &mut instances);
        list.remove(3, &mut instances);
        list.push(1, &mut instances);
        assert_eq!(list.iter(&instances).rev().collect::<Vec<_>>(), [1, 2]);
        list.move_to_end(2, &mut instances);
        assert_eq!(list.iter(&instances).collect::<Vec<_>>(), [1, 2]);
        let mut both = list.iter(&instances);
        let ends = (both.next(), both.next_back(), both.next(), both.next_back());
        assert_eq!(ends, (Some(1), Some(2), None, None));
        list.remove(2, &mut instances);
        list.remove(1, &mut instances);
        assert!(list.is_empty() && list.iter(&instances).next().is_none());
        list.push(3, &mut instances);
        assert_eq!(list.iter(&instances).collect::<Vec<_>>(), [3]);
    }
}
