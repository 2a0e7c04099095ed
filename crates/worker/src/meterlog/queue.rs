//! The queue into the writer's thread.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::entry::Entry;
use super::log::Keeping;

/// So many rows are enough for a commit.
const ENOUGH_ROWS: usize = 256;
/// So many rows are not kept in memory any longer: there is room for more of each kind.
const MOST_IN_MEMORY: usize = 8_000;
/// Most bytes of events in one commit, so that nobody waits long for large ones of others.
const BATCH_EVENT_BYTES: usize = 1024 * 1024;
const BATCH_EVENTS: usize = 256;

/// Rows, which nobody waits for, are collected for so long: one transaction costs as much as a few
/// of them.
const COLLECT: Duration = Duration::from_millis(250);
/// The thread looks for rows this long after the last before it has to be woken for them, so that
/// what a request costs is not a thread's wake-up.
const LINGER: Duration = Duration::from_secs(1);

/// What [`Queue::take`] came back with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Entries,
    /// Nothing came in time.
    Nothing,
    /// Nothing is left, and nothing more will come.
    Closed,
}

/// Entries from all who write, for the one thread that takes them.
pub(super) struct Queue {
    keeping: Keeping,
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Rows, and barriers between them.
    rows: VecDeque<Entry>,
    events: VecDeque<Entry>,
    /// Somebody waits for what is there, or it is enough for a commit.
    urgent: bool,
    /// The thread waits to be woken for anything.
    asleep: bool,
    closed: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.events.is_empty()
    }
}

impl Queue {
    pub(super) fn new(keeping: Keeping) -> Self {
        Self { keeping, waiting: Mutex::default(), arrived: Condvar::new() }
    }

    /// How many rows bring the thread to write them, whoever waits.
    fn enough(&self) -> usize {
        match self.keeping {
            Keeping::Durable => ENOUGH_ROWS,
            Keeping::Memory => MOST_IN_MEMORY,
        }
    }

    /// Appends an entry. A queue that is closed drops it, which tells whoever waits for it.
    pub(super) fn push(&self, entry: Entry) {
        let mut waiting = self.lock();
        if waiting.closed {
            // Not under the lock: whoever is told may come back with the next entry.
            drop(waiting);
            drop(entry);
            return;
        }
        waiting.urgent |= !matches!(entry, Entry::Row(_)) || waiting.rows.len() >= self.enough();
        match entry {
            // What becomes of a trigger stays in the order of the events that it began.
            Entry::Event { .. } | Entry::Trigger { .. } => waiting.events.push_back(entry),
            _ => waiting.rows.push_back(entry),
        }
        let wake = waiting.urgent || waiting.asleep;
        waiting.asleep = false;
        drop(waiting);
        if wake {
            self.arrived.notify_one();
        }
    }

    /// Waits for entries, for ever or this long, and moves them to `batch`: all rows and barriers, and
    /// one commit's worth of events.
    pub(super) fn take(&self, batch: &mut Vec<Entry>, patience: Option<Duration>) -> Taken {
        let began = Instant::now();
        let mut waiting = self.lock();
        while !waiting.urgent {
            if waiting.closed && waiting.is_empty() {
                return Taken::Closed;
            }
            let waited = began.elapsed();
            if waiting.closed || patience.is_some_and(|patience| waited >= patience) {
                break;
            }
            waiting.asleep = waiting.is_empty() && waited > LINGER && patience.is_none();
            if waiting.asleep {
                waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let pause =
                patience.map_or(COLLECT, |patience| COLLECT.min(patience.saturating_sub(waited)));
            let result = self.arrived.wait_timeout(waiting, pause);
            let (after, timeout) = result.unwrap_or_else(PoisonError::into_inner);
            waiting = after;
            if timeout.timed_out() && !waiting.is_empty() && self.keeping == Keeping::Durable {
                break;
            }
        }
        if self.keeping == Keeping::Durable || waiting.urgent || waiting.closed {
            batch.extend(waiting.rows.drain(..));
        }
        let (mut bytes, mut events) = (0, 0);
        while bytes < BATCH_EVENT_BYTES && events < BATCH_EVENTS {
            let Some(entry) = waiting.events.pop_front() else { break };
            if let Entry::Event { event, .. } = &entry {
                bytes += event.payload.len();
            }
            batch.push(entry);
            events += 1;
        }
        waiting.urgent = !waiting.events.is_empty();
        if batch.is_empty() { Taken::Nothing } else { Taken::Entries }
    }

    /// Whether what is pushed is dropped.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
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

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
