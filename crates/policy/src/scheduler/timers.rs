//! The times at which something is due for an instance, and when to be woken for the next.
//!
//! Most timers are set anew long before they are due, always for later: each request does that. So an
//! instance's entry in the heap is left where it is then, and moved when it comes up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{InstanceId, Nanos};

/// More outdated entries than this, and than valid ones, are removed at once.
const MAX_OUTDATED: usize = 64;

/// The timer of the instance in a slot.
#[derive(Debug, Clone, Copy)]
struct Timer {
    instance: InstanceId,
    /// When it is due, if it is set.
    due: Option<Nanos>,
    /// The time of its entry in the heap, which is not later.
    entry: Option<Nanos>,
}

/// At most one timer for each slot.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Nanos, InstanceId, usize)>>,
    by_slot: Vec<Timer>,
    /// Timers that are set.
    set: usize,
    /// Timers with an entry in the heap.
    entries: usize,
    /// The wake-up that was asked for and has not come yet.
    armed: Option<Nanos>,
}

impl Timers {
    /// Sets the timer of the instance in this slot.
    pub(crate) fn set(&mut self, slot: usize, instance: InstanceId, at: Nanos) {
        if self.by_slot.len() <= slot {
            let empty = Timer { instance, due: None, entry: None };
            self.by_slot.resize(slot + 1, empty);
        }
        let timer = &mut self.by_slot[slot];
        debug_assert!(timer.instance == instance || timer.due.is_none(), "cleared at removal");
        if timer.instance != instance {
            self.entries -= usize::from(timer.entry.is_some());
            *timer = Timer { instance, due: None, entry: None };
        }
        self.set += usize::from(timer.due.is_none());
        timer.due = Some(at);
        if timer.entry.is_none_or(|entry| at < entry) {
            self.entries += usize::from(timer.entry.is_none());
            timer.entry = Some(at);
            self.heap.push(Reverse((at, instance, slot)));
            self.remove_outdated();
        }
    }

    pub(crate) fn clear(&mut self, slot: usize) {
        if let Some(timer) = self.by_slot.get_mut(slot) {
            self.set -= usize::from(timer.due.take().is_some());
        }
    }

    /// Forgets the timer of an instance that is gone.
    pub(crate) fn remove(&mut self, slot: usize) {
        self.clear(slot);
        if let Some(timer) = self.by_slot.get_mut(slot) {
            self.entries -= usize::from(timer.entry.take().is_some());
        }
    }

    /// Takes the next timer that is due: in order of time, then of instance.
    pub(crate) fn next_due(&mut self, now: Nanos) -> Option<usize> {
        while let Some(&Reverse((at, instance, slot))) = self.heap.peek() {
            if at > now {
                return None;
            }
            self.heap.pop();
            let timer = &mut self.by_slot[slot];
            if timer.instance != instance || timer.entry != Some(at) {
                continue;
            }
            match timer.due {
                Some(due) if due > at => {
                    timer.entry = Some(due);
                    self.heap.push(Reverse((due, instance, slot)));
                }
                due => {
                    timer.entry = None;
                    self.entries -= 1;
                    if due.is_some() {
                        self.clear(slot);
                        return Some(slot);
                    }
                }
            }
        }
        None
    }

    /// The wake-up to ask for, `other` being a further time of interest. None if the one that is on
    /// its way comes early enough: asking anew each time would cost more than being woken once in
    /// vain.
    pub(crate) fn arm(&mut self, now: Nanos, other: Option<Nanos>) -> Option<Nanos> {
        self.armed = self.armed.filter(|&at| at > now);
        let first = self.heap.peek().map(|&Reverse((at, ..))| at);
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
            self.heap.retain(|Reverse((at, instance, slot))| {
                let timer = &by_slot[*slot];
                timer.instance == *instance && timer.entry == Some(*at)
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InstanceId = InstanceId(1);
    const B: InstanceId = InstanceId(2);

    #[test]
    fn one_timer_an_instance_and_one_wake_up() {
        let mut timers = Timers::default();
        timers.set(0, A, 10);
        assert_eq!(timers.arm(0, None), Some(10));
        timers.set(0, A, 20);
        timers.set(1, B, 15);
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
    fn an_earlier_time_and_another_instance_in_the_slot_replace_what_was_set() {
        let mut timers = Timers::default();
        timers.set(0, A, 20);
        timers.set(0, A, 5);
        assert_eq!(timers.next_due(6), Some(0));
        timers.set(0, A, 20);
        timers.remove(0);
        timers.set(0, B, 30);
        assert_eq!((timers.next_due(29), timers.next_due(30)), (None, Some(0)));
        assert_eq!((timers.next_due(99), timers.len()), (None, 0));
    }

    #[test]
    fn what_is_outdated_does_not_pile_up() {
        let mut timers = Timers::default();
        for n in 0..10_000 {
            timers.set(0, InstanceId(n), Nanos::MAX);
            timers.remove(0);
        }
        assert!(timers.heap.len() <= MAX_OUTDATED + 2, "{}", timers.heap.len());
    }
}
