//! The queue into the writer's thread.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::entry::Entry;

/// Most entries of one commit; bounds how long the first of them waits.
const BATCH_ENTRIES: usize = 256;
/// Most bytes of events in one commit, so that rows do not wait long for large events.
const BATCH_EVENT_BYTES: usize = 1024 * 1024;

/// What [`Queue::take`] came back with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Entries,
    /// Nothing came in time.
    Nothing,
    /// Nothing is left, and nothing more will come.
    Closed,
}

/// Entries from all who write, for the one thread that takes them. Rows overtake events, which are
/// larger and nobody's answer.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    rows: VecDeque<Entry>,
    events: VecDeque<Entry>,
    closed: bool,
}

impl Queue {
    /// Appends an entry. A queue that is closed drops it, which tells whoever waits for it.
    pub(super) fn push(&self, entry: Entry) {
        let mut waiting = self.lock();
        if waiting.closed {
            // Not under the lock: whoever is told may come back with the next entry.
            drop(waiting);
            drop(entry);
            return;
        }
        match entry {
            Entry::Event { .. } => waiting.events.push_back(entry),
            _ => waiting.rows.push_back(entry),
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Waits for entries, for ever or this long, and moves one commit's worth of them to `batch`.
    pub(super) fn take(&self, batch: &mut Vec<Entry>, patience: Option<Duration>) -> Taken {
        let mut waiting = self.lock();
        while waiting.rows.is_empty() && waiting.events.is_empty() {
            if waiting.closed {
                return Taken::Closed;
            }
            waiting = match patience {
                None => self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let result = self.arrived.wait_timeout(waiting, patience);
                    let (waiting, timeout) = result.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() {
                        return Taken::Nothing;
                    }
                    waiting
                }
            };
        }
        let rows = waiting.rows.len().min(BATCH_ENTRIES);
        batch.extend(waiting.rows.drain(..rows));
        let mut bytes = 0;
        while bytes < BATCH_EVENT_BYTES && batch.len() < 2 * BATCH_ENTRIES {
            let Some(entry) = waiting.events.pop_front() else { break };
            if let Entry::Event { event, .. } = &entry {
                bytes += event.payload.len();
            }
            batch.push(entry);
        }
        Taken::Entries
    }

    /// Lets nothing in any more; what is there can still be taken.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }

    /// Lets nothing in any more, and drops what is there.
    pub(super) fn abandon(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let left = (std::mem::take(&mut waiting.rows), std::mem::take(&mut waiting.events));
        drop(waiting);
        drop(left);
    }

    /// Rows and events that wait.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        let waiting = self.lock();
        (waiting.rows.len(), waiting.events.len())
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
