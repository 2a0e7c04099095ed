//! Deadlines that are all equally far from when they were set.

const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
    at: i64,
    listed: bool,
}

const UNLINKED: Link = Link { previous: NONE, next: NONE, at: 0, listed: false };

/// A queue of slots by deadline. Since every deadline is the same time after its setting, the queue
/// is in order by itself; setting, dropping and finding the first cost the same whatever is in it.
#[derive(Debug)]
pub(super) struct Deadlines {
    timeout_ns: i64,
    links: Vec<Link>,
    first: u32,
    last: u32,
}

impl Deadlines {
    pub(super) fn new(timeout_ns: i64) -> Self {
        Self { timeout_ns, links: Vec::new(), first: NONE, last: NONE }
    }

    /// Sets the deadline of a slot, from `now`. `now` must not go back from call to call, and the
    /// slot must have no deadline.
    pub(super) fn set(&mut self, slot: u32, now: i64) {
        let index = slot as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, UNLINKED);
        }
        debug_assert!(!self.links[index].listed);
        let at = now.saturating_add(self.timeout_ns);
        self.links[index] = Link { previous: self.last, next: NONE, at, listed: true };
        match self.last {
            NONE => self.first = slot,
            last => self.links[last as usize].next = slot,
        }
        self.last = slot;
    }

    /// Drops the deadline of a slot, if it has one.
    pub(super) fn drop(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(slot as usize).filter(|link| link.listed) else {
            return;
        };
        let Link { previous, next, .. } = std::mem::replace(link, UNLINKED);
        match previous {
            NONE => self.first = next,
            previous => self.links[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => self.links[next as usize].previous = previous,
        }
    }

    /// The slot whose deadline is next, and when that is.
    pub(super) fn first(&self) -> Option<(u32, i64)> {
        self.links.get(self.first as usize).map(|link| (self.first, link.at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a plain list.
        #[test]
        fn behaves_as_a_queue_with_removal(
            steps in prop::collection::vec((0u32..8, any::<bool>(), 0i64..3), 0..200)
        ) {
            let mut deadlines = Deadlines::new(10);
            let mut model: Vec<(u32, i64)> = Vec::new();
            let mut now = 0;
            for (slot, set, passed) in steps {
                now += passed;
                let listed = model.iter().any(|(other, _)| *other == slot);
                if set && !listed {
                    deadlines.set(slot, now);
                    model.push((slot, now + 10));
                } else if !set {
                    deadlines.drop(slot);
                    model.retain(|(other, _)| *other != slot);
                }
                prop_assert_eq!(deadlines.first(), model.first().copied());
            }
            while let Some((slot, at)) = deadlines.first() {
                prop_assert_eq!((slot, at), model.remove(0));
                deadlines.drop(slot);
            }
            prop_assert!(model.is_empty());
        }
    }
}
