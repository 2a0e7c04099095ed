//! Bringing the journal to disk ahead of time.
//!
//! Now and then SQLite copies its journal into the database, in the thread that writes, and first
//! waits until all of the journal is on disk. Everybody whose answer waits for a row waits with it,
//! and the more one function writes, the more often. So another thread sees to it that little is left
//! to wait for. What is durable when does not change, and neither does anything if this thread ends.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Entries between two flushes: some 100 KB to 1 MB of the journal.
const FLUSH_ENTRIES: usize = 100;

/// The thread; ends when it is dropped.
pub(super) struct Flusher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Entries written since the last flush began.
    entries: usize,
    flushes: u64,
    ended: bool,
}

impl Flusher {
    /// Starts the thread for the journal at this path, which need not exist yet.
    pub(super) fn start(journal: PathBuf) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let own = shared.clone();
        let thread = thread::Builder::new()
            .name("meter-log-flush".to_owned())
            .spawn(move || own.run(&journal))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// So many entries were written.
    pub(super) fn note(&self, entries: usize) {
        let mut state = self.shared.lock();
        state.entries += entries;
        if state.entries >= FLUSH_ENTRIES {
            self.shared.changed.notify_all();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it panicked, there is nothing to make good.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, journal: &Path) {
        loop {
            let waiting = |state: &mut State| !state.ended && state.entries < FLUSH_ENTRIES;
            let state = self.changed.wait_while(self.lock(), waiting);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if state.ended {
                return;
            }
            state.entries = 0;
            drop(state);
            // Opened anew, since SQLite may replace it. SQLite itself reports what is wrong with it.
            let _ = File::open(journal).and_then(|file| file.sync_data());
            self.lock().flushes += 1;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_is_flushed_once_enough_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let journal = folder.path().join("x-wal");
        std::fs::write(&journal, "x").unwrap();
        let flusher = Flusher::start(journal.clone()).unwrap();
        let flushed = |count| {
            let shared = &flusher.shared;
            drop(shared.changed.wait_while(shared.lock(), |state| state.flushes < count).unwrap());
        };
        flusher.note(FLUSH_ENTRIES - 1);
        assert_eq!(flusher.shared.lock().flushes, 0);
        flusher.note(1);
        flushed(1);
        // A journal that is gone is no error of this thread's.
        std::fs::remove_file(journal).unwrap();
        flusher.note(FLUSH_ENTRIES);
        flushed(2);
    }
}
