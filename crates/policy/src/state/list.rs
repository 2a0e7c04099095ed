//! Lists of instances, linked through the instances: any of them leaves in constant time, and nothing
//! is allocated.

use slab::Slab;

use crate::state::Instance;

/// No instance.
const NONE: u32 = u32::MAX;

/// An instance's neighbours in a list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
}

impl Links {
    /// Those of an instance that is in no list, or alone in one.
    pub(crate) const NONE: Self = Self { previous: NONE, next: NONE };
}

/// Which of an instance's links a list goes by; in each of them it is in one list at most.
pub(crate) trait By {
    /// These links.
    fn links(instance: &mut Instance) -> &mut Links;
    /// What they are.
    fn neighbours(instance: &Instance) -> Links;
}

/// Lists of the instances of a function.
#[derive(Debug)]
pub(crate) struct ByFunction;

impl By for ByFunction {
    fn links(instance: &mut Instance) -> &mut Links {
        &mut instance.function_links
    }

    fn neighbours(instance: &Instance) -> Links {
        instance.function_links
    }
}

/// Lists of the instances on a worker.
#[derive(Debug)]
pub(crate) struct ByWorker;

impl By for ByWorker {
    fn links(instance: &mut Instance) -> &mut Links {
        &mut instance.worker_links
    }

    fn neighbours(instance: &Instance) -> Links {
        instance.worker_links
    }
}

/// Slots of instances in the order in which they came.
#[derive(Debug)]
pub(crate) struct List<B> {
    first: u32,
    last: u32,
    by: std::marker::PhantomData<B>,
}

impl<B> Default for List<B> {
    fn default() -> Self {
        Self { first: NONE, last: NONE, by: std::marker::PhantomData }
    }
}

impl<B: By> List<B> {
    pub(crate) fn is_empty(&self) -> bool {
        self.last == NONE
    }

    /// Adds an instance at the end.
    pub(crate) fn push(&mut self, slot: usize, instances: &mut Slab<Instance>) {
        let previous = std::mem::replace(&mut self.last, slot as u32);
        *B::links(&mut instances[slot]) = Links { previous, next: NONE };
        match previous {
            NONE => self.first = slot as u32,
            previous => B::links(&mut instances[previous as usize]).next = slot as u32,
        }
    }

    /// Takes out an instance, which must be in the list.
    pub(crate) fn remove(&mut self, slot: usize, instances: &mut Slab<Instance>) {
        let Links { previous, next } = B::neighbours(&instances[slot]);
        match previous {
            NONE => self.first = next,
            previous => B::links(&mut instances[previous as usize]).next = next,
        }
        match next {
            NONE => self.last = previous,
            next => B::links(&mut instances[next as usize]).previous = previous,
        }
    }

    /// Moves an instance of the list to its end.
    pub(crate) fn move_to_end(&mut self, slot: usize, instances: &mut Slab<Instance>) {
        if self.last != slot as u32 {
            self.remove(slot, instances);
            self.push(slot, instances);
        }
    }

    /// The slots, from the first or the last.
    pub(crate) fn iter<'a>(&self, instances: &'a Slab<Instance>) -> Iter<'a, B> {
        Iter { first: self.first, last: self.last, instances, by: std::marker::PhantomData }
    }
}

/// What is left of a list to iterate over.
#[derive(Debug)]
pub(crate) struct Iter<'a, B> {
    first: u32,
    last: u32,
    instances: &'a Slab<Instance>,
    by: std::marker::PhantomData<B>,
}

impl<B: By> Iter<'_, B> {
    /// Shortens the rest by `slot`, which is at one of its ends, to `(first, last)` unless it was the
    /// only one.
    fn take(&mut self, slot: u32, ends: impl FnOnce(Links) -> (u32, u32)) -> Option<usize> {
        if slot == NONE {
            return None;
        }
        (self.first, self.last) = if self.first == self.last {
            (NONE, NONE)
        } else {
            ends(B::neighbours(&self.instances[slot as usize]))
        };
        Some(slot as usize)
    }
}

impl<B: By> Iterator for Iter<'_, B> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let last = self.last;
        self.take(self.first, |links| (links.next, last))
    }
}

impl<B: By> DoubleEndedIterator for Iter<'_, B> {
    fn next_back(&mut self) -> Option<usize> {
        let first = self.first;
        self.take(self.last, |links| (first, links.previous))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::instance::tests::starting;

    #[test]
    fn instances_leave_from_anywhere_and_the_order_stays() {
        let mut instances: Slab<Instance> = (0..5).map(|slot| (slot, starting())).collect();
        let mut list = List::<ByWorker>::default();
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
        assert_eq!(
            (both.next(), both.next_back(), both.next(), both.next_back()),
            (Some(1), Some(2), None, None)
        );
        list.remove(2, &mut instances);
        list.remove(1, &mut instances);
        assert!(list.is_empty() && list.iter(&instances).next().is_none());
    }
}
