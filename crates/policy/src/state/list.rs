//! Doubly linked lists over slots: constant time at both ends and for removal from within.

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// The links of all lists of one kind; a slot is in at most one of them.
#[derive(Debug, Default)]
pub(crate) struct Links(Vec<Link>);

/// One list.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NONE, last: NONE }
    }
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    pub(crate) fn push_back(&mut self, links: &mut Links, slot: usize) {
        let index = slot as u32;
        if links.0.len() <= slot {
            links.0.resize(slot + 1, Link { previous: NONE, next: NONE });
        }
        links.0[slot] = Link { previous: self.last, next: NONE };
        match self.last {
            NONE => self.first = index,
            last => links.0[last as usize].next = index,
        }
        self.last = index;
    }

    /// Takes out a slot, which must be in this list.
    pub(crate) fn remove(&mut self, links: &mut Links, slot: usize) {
        let Link { previous, next } = links.0[slot];
        match previous {
            NONE => self.first = next,
            previous => links.0[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => links.0[next as usize].previous = previous,
        }
    }

    /// Its slots, from the front or the back.
    pub(crate) fn iter<'a>(&self, links: &'a Links) -> Iter<'a> {
        Iter { links, first: self.first, last: self.last }
    }
}

/// Yields the slots of a list.
#[derive(Debug, Clone)]
pub(crate) struct Iter<'a> {
    links: &'a Links,
    first: u32,
    last: u32,
}

impl Iter<'_> {
    /// Nothing is left once both ends have met.
    fn close_at(&mut self, slot: u32) {
        if self.first == self.last {
            (self.first, self.last) = (NONE, NONE);
        } else if slot == self.first {
            self.first = self.links.0[slot as usize].next;
        } else {
            self.last = self.links.0[slot as usize].previous;
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let slot = self.first;
        (slot != NONE).then(|| {
            self.close_at(slot);
            slot as usize
        })
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<usize> {
        let slot = self.last;
        (slot != NONE).then(|| {
            self.close_at(slot);
            slot as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_leave_from_anywhere_and_the_order_stays() {
        let (mut links, mut list) = (Links::default(), List::default());
        for slot in [4, 0, 2, 7] {
            list.push_back(&mut links, slot);
        }
        list.remove(&mut links, 0);
        assert_eq!(list.iter(&links).collect::<Vec<_>>(), [4, 2, 7]);
        assert_eq!(list.iter(&links).rev().collect::<Vec<_>>(), [7, 2, 4]);
        let mut both = list.iter(&links);
        assert_eq!((both.next(), both.next_back(), both.next()), (Some(4), Some(7), Some(2)));
        assert_eq!((both.next(), both.next_back()), (None, None));
        for slot in [7, 4, 2] {
            list.remove(&mut links, slot);
        }
        assert!(list.is_empty());
    }
}
