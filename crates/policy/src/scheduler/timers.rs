//! The times at which something is due for an instance, and when to be woken for the next.
//!
//! Most timers are set anew long before they are due, always for later: each request does that. So an
//! instance's entry is left where it is then, and moved when it comes up. Entries are in a wheel: what
//! is due in the same 1.05 ms is in one bucket, what is due in the same 64 of those, beyond the current
//! ones, in another, and so on. A bucket is opened when all before it are empty; what is due in the
//! one that was opened last, or before it, is in a small heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::Nanos;
use crate::state::timer::{NEVER, TimerOf};

/// More outdated entries than this, and than valid ones, are removed at once.
const MAX_OUTDATED: usize = 64;

/// A bucket of the finest level is 2^20 ns wide.
const WIDTH_BITS: u32 = 20;

/// Each level has 64 buckets, as many as a word has bits.
const LEVEL_BITS: u32 = 6;
const BUCKETS: usize = 1 << LEVEL_BITS;

/// So many levels reach the end of time.
const LEVELS: usize = (Nanos::BITS - WIDTH_BITS).div_ceil(LEVEL_BITS) as usize;

/// A time and the slot whose timer was set to it; outdated unless it is the timer's entry.
type Entry = (Nanos, u32);

/// At most one timer for each slot, which lies elsewhere: who calls passes them all.
#[derive(Debug)]
pub(crate) struct Timers {
    /// Entries of the bucket that was opened last, and of those before it.
    near: BinaryHeap<Reverse<Entry>>,
    /// The number of that bucket of the finest level.
    opened: u64,
    /// All other entries: the buckets of each level.
    levels: Vec<[Vec<Entry>; BUCKETS]>,
    /// A bit for each bucket with entries.
    occupied: [u64; LEVELS],
    /// Timers that are set.
    set: usize,
    /// Timers with an entry, and entries, outdated ones included.
    valid: usize,
    entries: usize,
    /// No timer is due before this.
    earliest: Nanos,
    /// The wake-up that was asked for and has not come yet, or never.
    armed: Nanos,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            near: BinaryHeap::new(),
            opened: 0,
            levels: (0..LEVELS).map(|_| [const { Vec::new() }; BUCKETS]).collect(),
            occupied: [0; LEVELS],
            set: 0,
            valid: 0,
            entries: 0,
            earliest: NEVER,
            armed: NEVER,
        }
    }
}

impl Timers {
    /// Sets the timer of this slot; the end of time is as late as a moment before it.
    #[expect(clippy::inline_always, reason = "half of a call would be to save registers")]
    #[inline(always)]
    pub(crate) fn set(&mut self, timers: &mut impl TimerOf, slot: usize, at: Nanos) {
        let at = at.min(NEVER - 1);
        let timer = timers.timer(slot);
        self.set += usize::from(timer.due == NEVER);
        timer.due = at;
        if at < timer.entry {
            self.valid += usize::from(timer.entry == NEVER);
            timer.entry = at;
            self.add((at, slot as u32));
            if self.entries > 2 * self.valid + MAX_OUTDATED {
                self.remove_outdated(timers);
            }
        }
    }

    #[inline]
    pub(crate) fn clear(&mut self, timers: &mut impl TimerOf, slot: usize) {
        let timer = timers.timer(slot);
        self.set -= usize::from(timer.due != NEVER);
        timer.due = NEVER;
    }

    /// Clears the timer of a slot that becomes free.
    pub(crate) fn forget(&mut self, timers: &mut impl TimerOf, slot: usize) {
        self.clear(timers, slot);
        let timer = timers.timer(slot);
        self.valid -= usize::from(timer.entry != NEVER);
        timer.entry = NEVER;
    }

    /// Whether a timer may be due: most often none is, and what is outdated may stay until one seems to be.
    pub(crate) fn may_be_due(&self, now: Nanos) -> bool {
        self.earliest <= now
    }

    /// Takes the next timer that is due: in order of time, then of slot.
    pub(crate) fn next_due(&mut self, timers: &mut impl TimerOf, now: Nanos) -> Option<usize> {
        if !self.may_be_due(now) {
            return None;
        }
        let (at, slot) = self.first(timers)?;
        if at > now {
            return None;
        }
        self.near.pop();
        self.entries -= 1;
        self.valid -= 1;
        timers.timer(slot).entry = NEVER;
        self.clear(timers, slot);
        Some(slot)
    }

    /// The wake-up to ask for, `other` being a further time of interest or never. None if the one that
    /// is on its way comes early enough: asking anew each time would cost more than being woken once in
    /// vain.
    #[inline]
    pub(crate) fn arm(
        &mut self,
        timers: &mut impl TimerOf,
        now: Nanos,
        other: Nanos,
    ) -> Option<Nanos> {
        let comes_early = self.armed > now && self.armed <= self.earliest.min(other);
        if comes_early { None } else { self.arm_anew(timers, now, other) }
    }

    #[inline(never)]
    fn arm_anew(&mut self, timers: &mut impl TimerOf, now: Nanos, other: Nanos) -> Option<Nanos> {
        if self.armed <= now {
            self.armed = NEVER;
        }
        let next = self.first(timers).map_or(NEVER, |(at, _)| at).min(other);
        if self.armed <= next {
            return None;
        }
        self.armed = next;
        Some(next)
    }

    /// Timers that are set.
    pub(crate) fn len(&self) -> usize {
        self.set
    }

    /// The level and index of the first bucket with entries, and the number of the first bucket of
    /// the finest level in it.
    fn next_bucket(&self) -> Option<(usize, usize, u64)> {
        let level = self.occupied.iter().position(|occupied| *occupied != 0)?;
        let index = self.occupied[level].trailing_zeros();
        let bits = level as u32 * LEVEL_BITS;
        // The opened one differs from it in the level's bits and below.
        let above = self.opened >> bits >> LEVEL_BITS << LEVEL_BITS;
        Some((level, index as usize, (above | u64::from(index)) << bits))
    }

    /// The timer that is due first, which is the first of `near` then, once outdated entries before
    /// it are gone or moved.
    fn first(&mut self, timers: &mut impl TimerOf) -> Option<(Nanos, usize)> {
        let first = self.find_first(timers);
        self.earliest = first.map_or(NEVER, |(at, _)| at);
        first
    }

    fn find_first(&mut self, timers: &mut impl TimerOf) -> Option<(Nanos, usize)> {
        loop {
            while let Some(&Reverse((at, slot))) = self.near.peek() {
                let timer = timers.timer(slot as usize);
                if timer.entry == at && timer.due == at {
                    return Some((at, slot as usize));
                }
                self.near.pop();
                self.renew(timers, (at, slot));
            }
            let (level, index, number) = self.next_bucket()?;
            self.opened = number;
            self.occupied[level] &= !(1 << index);
            let mut bucket = std::mem::take(&mut self.levels[level][index]);
            for entry in bucket.drain(..) {
                self.renew(timers, entry);
            }
            // Nothing was put into it meanwhile; its memory is used again.
            self.levels[level][index] = bucket;
        }
    }

    /// Puts an entry that was taken out where its timer is due by now, or drops it.
    fn renew(&mut self, timers: &mut impl TimerOf, (at, slot): Entry) {
        self.entries -= 1;
        let timer = timers.timer(slot as usize);
        if timer.entry == at {
            timer.entry = timer.due;
            if timer.due == NEVER {
                self.valid -= 1;
            } else {
                let entry = (timer.due, slot);
                self.add(entry);
            }
        }
    }

    fn add(&mut self, entry: Entry) {
        self.entries += 1;
        self.earliest = self.earliest.min(entry.0);
        let number = entry.0 >> WIDTH_BITS;
        if number <= self.opened {
            self.near.push(Reverse(entry));
            return;
        }
        let level = (number ^ self.opened).ilog2() / LEVEL_BITS;
        let index = (number >> (level * LEVEL_BITS)) as usize % BUCKETS;
        self.occupied[level as usize] |= 1 << index;
        self.levels[level as usize][index].push(entry);
    }

    #[cold]
    fn remove_outdated(&mut self, timers: &mut impl TimerOf) {
        // The same time may have been set more than once: only the first of such entries is kept.
        let mut keep = |&(at, slot): &Entry| {
            let entry = &mut timers.timer(slot as usize).entry;
            let is_valid = *entry == at;
            if is_valid {
                *entry = NEVER;
            }
            is_valid
        };
        self.near.retain(|Reverse(entry)| keep(entry));
        for (level, occupied) in self.levels.iter_mut().zip(&mut self.occupied) {
            for (index, bucket) in level.iter_mut().enumerate() {
                bucket.retain(&mut keep);
                if bucket.is_empty() {
                    *occupied &= !(1 << index);
                }
            }
        }
        self.entries = 0;
        let near = self.near.iter().map(|Reverse(entry)| entry);
        for &(at, slot) in near.chain(self.levels.iter().flatten().flatten()) {
            timers.timer(slot as usize).entry = at;
            self.entries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::timer::Timer;

    impl TimerOf for Vec<Timer> {
        fn timer(&mut self, slot: usize) -> &mut Timer {
            &mut self[slot]
        }
    }

    fn none(slots: usize) -> (Timers, Vec<Timer>) {
        (Timers::default(), vec![Timer::default(); slots])
    }

    #[test]
    fn one_timer_an_instance_and_one_wake_up() {
        let (mut timers, mut slots) = none(2);
        timers.set(&mut slots, 0, 10);
        assert_eq!(timers.arm(&mut slots, 0, NEVER), Some(10));
        timers.set(&mut slots, 0, 20);
        timers.set(&mut slots, 1, 15);
        assert_eq!(timers.arm(&mut slots, 1, NEVER), None, "the wake-up at 10 is early enough");
        assert_eq!(timers.len(), 2);
        assert_eq!(timers.next_due(&mut slots, 10), None);
        assert_eq!(timers.arm(&mut slots, 10, NEVER), Some(15));
        assert_eq!(timers.arm(&mut slots, 10, 12), Some(12));
        assert_eq!(timers.next_due(&mut slots, 30), Some(1));
        assert_eq!(timers.next_due(&mut slots, 30), Some(0));
        assert_eq!(
            (timers.next_due(&mut slots, 30), timers.arm(&mut slots, 30, NEVER), timers.len()),
            (None, None, 0)
        );
    }

    #[test]
    fn an_earlier_time_and_another_use_of_the_slot_replace_what_was_set() {
        let (mut timers, mut slots) = none(2);
        timers.set(&mut slots, 0, 20);
        timers.set(&mut slots, 0, 5);
        assert_eq!(timers.next_due(&mut slots, 6), Some(0));
        timers.set(&mut slots, 0, 20);
        timers.clear(&mut slots, 0);
        timers.set(&mut slots, 0, 30);
        assert_eq!(
            (timers.next_due(&mut slots, 29), timers.next_due(&mut slots, 30)),
            (None, Some(0))
        );
        assert_eq!((timers.next_due(&mut slots, 99), timers.len()), (None, 0));
    }

    #[test]
    fn what_is_outdated_does_not_pile_up() {
        let (mut timers, mut slots) = none(2);
        for n in 0..10_000 {
            timers.set(&mut slots, 0, 20_000 - n);
            timers.clear(&mut slots, 0);
        }
        assert!(timers.entries <= MAX_OUTDATED + 2, "{}", timers.entries);
    }

    proptest! {
        /// Whatever is set and cleared, the timers come up as from a sorted list.
        #[test]
        fn timers_come_up_in_order_of_time_and_slot(
            steps in prop::collection::vec((0..20_usize, 0..64_u32, 0..1_u64 << 40, 0..4), 1..300),
        ) {
            let (mut timers, mut slots) = none(20);
            let (mut sorted, mut now) = ([NEVER; 20], 0);
            for (slot, bits, pass, step) in steps {
                // From nanoseconds to centuries.
                let delay = pass >> (bits % 40) << (bits % 24);
                sorted[slot] = if step < 2 { now + delay } else { NEVER };
                match step {
                    0 | 1 => timers.set(&mut slots, slot, now + delay),
                    2 => timers.clear(&mut slots, slot),
                    _ => timers.forget(&mut slots, slot),
                }
                let first = || sorted.iter().copied().filter(|at| *at != NEVER).min();
                if let Some(at) = timers.arm(&mut slots, now, NEVER) {
                    prop_assert_eq!(Some(at), first());
                }
                prop_assert!(timers.armed == NEVER || first().is_none_or(|first| timers.armed <= first));
                prop_assert_eq!(timers.valid, slots.iter().filter(|timer| timer.entry != NEVER).count());
                prop_assert_eq!(timers.len(), sorted.iter().filter(|at| **at != NEVER).count());
                now += delay / 3;
                while let Some(slot) = timers.next_due(&mut slots, now) {
                    let next = (0..20).min_by_key(|slot| (sorted[*slot], *slot)).unwrap();
                    prop_assert_eq!(slot, next);
                    prop_assert!(sorted[slot] <= now);
                    sorted[slot] = NEVER;
                }
                prop_assert!(sorted.iter().all(|at| *at > now));
            }
        }
    }
}
