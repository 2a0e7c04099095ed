//! The times at which something is due for an instance, and when to be woken for the next.
//!
//! Most timers are set anew long before they are due, always for later: each request does that. So an
//! instance's entry in the heap is left where it is then, and moved when it comes up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::Nanos;

/// More outdated entries than this, and than valid ones, are removed at once.
const MAX_OUTDATED: usize = 64;

/// No time.
const NEVER: Nanos = Nanos::MAX;

/// The timer of a slot.
#[derive(Debug, Clone, Copy)]
struct Timer {
    /// When it is due, or never.
    due: Nanos,
    /// The time of its entry in the heap, which is not later, or never if it has none.
    entry: Nanos,
}

/// At most one timer for each slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, u32)>>,
    by_slot: Vec<Timer>,
    /// Timers that are set.
    set: usize,
    /// Timers with an entry in the heap.
    entries: usize,
    /// The wake-up that was asked for and has not come yet.
    armed: Option<Nanos>,
}

impl Timers {
    /// Sets the timer of this slot; the end of time is as late as a moment before it.
    pub(crate) fn set(&mut self, slot: usize, at: Nanos) {
        let at = at.min(NEVER - 1);
        if self.by_slot.len() <= slot {
            self.by_slot.resize(slot + 1, Timer { due: NEVER, entry: NEVER });
        }
        let timer = &mut self.by_slot[slot];
        self.set += usize::from(timer.due == NEVER);
        timer.due = at;
        if at < timer.entry {
            self.entries += usize::from(timer.entry == NEVER);
            timer.entry = at;
            self.heap.push(Reverse((at, slot as u32)));
            self.remove_outdated();
        }
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        if let Some(timer) = self.by_slot.get_mut(slot) {
            self.set -= usize::from(timer.due != NEVER);
            timer.due = NEVER;
        }
    }

    /// Takes the next timer that is due: in order of time, then of slot.
    pub(crate) fn next_due(&mut self, now: Nanos) -> Option<usize> {
        // Most often nothing is due; what is outdated may stay until something seems to be.
        if self.heap.peek().is_none_or(|&Reverse((at, ..))| at > now) {
            return None;
        }
        let (at, slot) = self.first()?;
        if at > now {
            return None;
        }
        self.heap.pop();
        self.by_slot[slot].entry = NEVER;
        self.entries -= 1;
        self.clear(slot);
        Some(slot)
    }

    /// The timer that is due first, once outdated entries before it are gone or moved.
    fn first(&mut self) -> Option<(Nanos, usize)> {
        while let Some(mut top) = self.heap.peek_mut() {
            let Reverse((at, slot)) = *top;
            let timer = &mut self.by_slot[slot as usize];
            if timer.entry == at {
                if timer.due == at {
                    return Some((at, slot as usize));
                }
                timer.entry = timer.due;
                if timer.due != NEVER {
                    *top = Reverse((timer.due, slot));
                    continue;
                }
                self.entries -= 1;
            }
            PeekMut::pop(top);
        }
        None
    }

    /// The wake-up to ask for, `other` being a further time of interest. None if the one that is on
    /// its way comes early enough: asking anew each time would cost more than being woken once in
    /// vain.
    pub(crate) fn arm(&mut self, now: Nanos, other: Option<Nanos>) -> Option<Nanos> {
        self.armed = self.armed.filter(|&at| at > now);
        let entry = self.heap.peek().map(|&Reverse((at, ..))| at);
        let earliest = entry.into_iter().chain(other).min()?;
        if self.armed.is_some_and(|armed| armed <= earliest) {
            return None;
        }
        let first = self.first().map(|(at, _)| at);
        let next = first.into_iter().chain(other).min()?;
        if self.armed.is_some_and(|armed| armed <= next) {
            return None;
        }
        self.armed = Some(next);
        Some(next)
    }

    /// Timers that are set.
    pub(crate) fn len(&self) -> usize {
        self.set
    }

    fn remove_outdated(&mut self) {
        if self.heap.len() > 2 * self.entries + MAX_OUTDATED {
            let by_slot = &self.by_slot;
            self.heap.retain(|Reverse((at, slot))| by_slot[*slot as usize].entry == *at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_timer_an_instance_and_one_wake_up() {
        let mut timers = Timers::default();
        timers.set(0, 10);
        assert_eq!(timers.arm(0, None), Some(10));
        timers.set(0, 20);
        timers.set(1, 15);
        assert_eq!(timers.arm(1, None), None, "the wake-up at 10 is early enough");
        assert_eq!(timers.len(), 2);
        assert_eq!(timers.next_due(10), None);
        assert_eq!(timers.arm(10, None), Some(15));
        assert_eq!(timers.arm(10, Some(12)), Some(12));
        assert_eq!(timers.next_due(30), Some(1));
        assert_eq!(timers.next_due(30), Some(0));
        assert_eq!((timers.next_due(30), timers.arm(30, None), timers.len()), (None, None, 0));
    }

    #[test]
    fn an_earlier_time_and_another_use_of_the_slot_replace_what_was_set() {
        let mut timers = Timers::default();
        timers.set(0, 20);
        timers.set(0, 5);
        assert_eq!(timers.next_due(6), Some(0));
        timers.set(0, 20);
        timers.clear(0);
        timers.set(0, 30);
        assert_eq!((timers.next_due(29), timers.next_due(30)), (None, Some(0)));
        assert_eq!((timers.next_due(99), timers.len()), (None, 0));
    }

    #[test]
    fn what_is_outdated_does_not_pile_up() {
        let mut timers = Timers::default();
        for n in 0..10_000 {
            timers.set(0, 20_000 - n);
            timers.clear(0);
        }
        assert!(timers.heap.len() <= MAX_OUTDATED + 2, "{}", timers.heap.len());
    }
}
