//! Wakers that only write down who was woken.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Whether the connection has something to do.
#[derive(Debug, Default)]
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn lower(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.raise();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.raise();
    }
}

/// The slots that were woken, each once. One thread has them all; the lock is for the compiler.
#[derive(Debug, Default)]
pub(super) struct Ready(Arc<Mutex<Vec<u32>>>);

impl Ready {
    /// A waker for a slot.
    pub(super) fn waker(&self, slot: u32) -> SlotWaker {
        let state =
            Arc::new(SlotState { slot, queued: AtomicBool::new(false), ready: self.0.clone() });
        SlotWaker { waker: Waker::from(state.clone()), state }
    }

    /// Exchanges the woken slots for an empty list.
    pub(super) fn take(&self, slots: &mut Vec<u32>) {
        slots.clear();
        std::mem::swap(slots, &mut *lock(&self.0));
    }
}

#[derive(Debug)]
struct SlotState {
    slot: u32,
    queued: AtomicBool,
    ready: Arc<Mutex<Vec<u32>>>,
}

impl Wake for SlotState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            lock(&self.ready).push(self.slot);
        }
    }
}

/// The waker of a slot, which outlives the exchanges in it: one that is woken for its predecessor
/// finds nothing new.
#[derive(Debug)]
pub(super) struct SlotWaker {
    pub waker: Waker,
    state: Arc<SlotState>,
}

impl SlotWaker {
    /// From now on the slot can be woken again.
    pub(super) fn rearm(&self) {
        self.state.queued.store(false, Ordering::Relaxed);
    }
}

fn lock(ready: &Mutex<Vec<u32>>) -> std::sync::MutexGuard<'_, Vec<u32>> {
    ready.lock().unwrap_or_else(PoisonError::into_inner)
}
