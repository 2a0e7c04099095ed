//! Lists of slots, any of which leaves in constant time.

/// No slot.
const NONE: u32 = u32::MAX;

/// A slot's neighbours in a list. All slots' lie together, in little memory, since each change of a
/// list is one of a slot's neighbours, too.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    previous: u32,
    next: u32,
}

impl Links {
    /// Those of a slot that is in no list, or alone in one.
    pub(crate) const NONE: Self = Self { previous: NONE, next: NONE };
}

/// Slots in the order in which they came. Lists of which a slot is in one at most share the links.
#[derive(Debug)]
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
        self.last == NONE
    }

    /// Adds a slot at the end.
    pub(crate) fn push(&mut self, slot: usize, links: &mut [Links]) {
        let previous = std::mem::replace(&mut self.last, slot as u32);
        links[slot] = Links { previous, next: NONE };
        match previous {
            NONE => self.first = slot as u32,
            previous => links[previous as usize].next = slot as u32,
        }
    }

    /// Takes out a slot, which must be in the list.
    pub(crate) fn remove(&mut self, slot: usize, links: &mut [Links]) {
        let Links { previous, next } = links[slot];
        match previous {
            NONE => self.first = next,
            previous => links[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => links[next as usize].previous = previous,
        }
    }

    /// Moves a slot of the list to its end.
    pub(crate) fn move_to_end(&mut self, slot: usize, links: &mut [Links]) {
        if self.last != slot as u32 {
            self.remove(slot, links);
            self.push(slot, links);
        }
    }

    /// The slots, from the first or the last.
    pub(crate) fn iter<'a>(&self, links: &'a [Links]) -> Iter<'a> {
        Iter { first: self.first, last: self.last, links }
    }
}

/// What is left of a list to iterate over.
#[derive(Debug)]
pub(crate) struct Iter<'a> {
    first: u32,
    last: u32,
    links: &'a [Links],
}

impl Iter<'_> {
    /// Takes `slot`, which is at one of the ends; the others are from `ends` on, unless it was the
    /// last one.
    fn take(&mut self, slot: u32, ends: impl FnOnce(Links) -> (u32, u32)) -> Option<usize> {
        if slot == NONE {
            return None;
        }
        (self.first, self.last) =
            if self.first == self.last { (NONE, NONE) } else { ends(self.links[slot as usize]) };
        Some(slot as usize)
    }
}

impl Iterator for Iter<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let last = self.last;
        self.take(self.first, |links| (links.next, last))
    }
}

impl DoubleEndedIterator for Iter<'_> {
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
        let (mut links, mut list) = ([Links::NONE; 5], List::default());
        for slot in [4, 0, 2, 3] {
            list.push(slot, &mut links);
        }
        list.remove(0, &mut links);
        assert_eq!(list.iter(&links).collect::<Vec<_>>(), [4, 2, 3]);
        list.remove(4, &mut links);
        list.remove(3, &mut links);
        list.push(1, &mut links);
        assert_eq!(list.iter(&links).rev().collect::<Vec<_>>(), [1, 2]);
        list.move_to_end(2, &mut links);
        assert_eq!(list.iter(&links).collect::<Vec<_>>(), [1, 2]);
        let mut both = list.iter(&links);
        let ends = (both.next(), both.next_back(), both.next(), both.next_back());
        assert_eq!(ends, (Some(1), Some(2), None, None));
        list.remove(2, &mut links);
        list.remove(1, &mut links);
        assert!(list.is_empty() && list.iter(&links).next().is_none());
    }
}
