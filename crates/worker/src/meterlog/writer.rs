//! The thread that brings rows and events into the database.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::entry::{Entry, Record, Row};
use super::journal::Journal;
use super::queue::{Queue, Taken};
use super::retention::{Counts, Retention};
use super::{LogError, tables};
use crate::store::DatabaseError;

/// Rows of one transaction: all that a disk which is full writes in vain.
const BATCH_ROWS: usize = 256;
/// While there are rows that the database does not take, the thread waits so long for other entries
/// before it tries them again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Rows that are written between two looks at what need not be kept any more.
const RETENTION_ROWS: usize = 500;
/// While rows are left that need not be kept, the thread waits so long for entries before it
/// removes a few of them.
const RETENTION_PAUSE: Duration = Duration::from_millis(20);

/// More than there are different statements, so that each is prepared once.
const STATEMENTS: usize = 48;

pub(super) struct Writer {
    path: PathBuf,
    connection: Connection,
    journal: Arc<Mutex<Journal>>,
    retention: Retention,
    /// Rows that are not in the database yet, in their order.
    rows: VecDeque<Box<Row>>,
    counts: Counts,
    /// Rows written since the last look at what need not be kept.
    written: usize,
    /// Whether that look found more than it removed.
    surplus: bool,
}

impl Writer {
    pub(super) fn new(
        path: PathBuf,
        connection: Connection,
        journal: Arc<Mutex<Journal>>,
        retention: Retention,
    ) -> Self {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Self {
            path,
            connection,
            journal,
            retention,
            rows: VecDeque::new(),
            counts: Counts::default(),
            written: 0,
            // A first look comes soon.
            surplus: true,
        }
    }

    /// Writes what comes until the queue is closed and empty.
    pub(super) fn run(mut self, queue: &Queue) {
        let mut batch = Vec::new();
        loop {
            let pause = if self.surplus {
                Some(RETENTION_PAUSE)
            } else {
                (!self.rows.is_empty()).then_some(RETRY_PAUSE)
            };
            match queue.take(&mut batch, pause) {
                Taken::Entries => self.write(&mut batch),
                Taken::Nothing => {
                    self.write_rows();
                    self.remove_surplus();
                }
                Taken::Closed => break,
            }
            if self.written >= RETENTION_ROWS {
                self.remove_surplus();
            }
        }
        self.write_rows();
        // So that the file is whole without its journal. The next start does it otherwise.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Writes a batch, and tells those who wait.
    fn write(&mut self, batch: &mut Vec<Entry>) {
        let (mut events, mut barriers) = (Vec::new(), Vec::new());
        for entry in batch.drain(..) {
            match entry {
                Entry::Row(row) => self.rows.push_back(row),
                Entry::Event { .. } => events.push(entry),
                Entry::Barrier(ack) => barriers.push(ack),
            }
        }
        self.write_rows();
        if !events.is_empty() {
            self.write_events(events);
        }
        for ack in barriers {
            // Whoever waits may have gone away meanwhile.
            let _ = ack.send(Ok(self.rows.len()));
        }
    }

    /// Writes the rows, as far as that can be, in the order in which they came.
    fn write_rows(&mut self) {
        while !self.rows.is_empty() {
            let count = self.rows.len().min(BATCH_ROWS);
            let committed = self.transaction(|connection| {
                let (mut written, mut applied) = (0, None);
                for row in self.rows.iter().take(count) {
                    written += tables::insert(connection, &row.record)?;
                    applied = row.number.or(applied);
                    // Whoever answers requests comes first; a batch would keep a CPU for too long.
                    std::thread::yield_now();
                }
                if let Some(number) = applied {
                    tables::set_applied(connection, number)?;
                }
                Ok((written, applied))
            });
            let Ok((written, applied)) = committed else { return };
            self.written += written;
            for row in self.rows.drain(..count) {
                match &row.record {
                    Record::Invocation(recorded) => {
                        if let Some(idle) = &recorded.idle {
                            self.counts.add(&idle.instance);
                        }
                    }
                    Record::Instance(row) => self.counts.note(row),
                    Record::DropEvent(_) => {}
                }
            }
            if let Some(applied) = applied {
                self.remove_files(applied);
            }
        }
    }

    /// Removes the files of the journal that nobody needs any more.
    fn remove_files(&self, applied: u64) {
        let done = self.journal.lock().unwrap_or_else(PoisonError::into_inner).applied(applied);
        for path in done {
            // What cannot be removed is read after a crash, and found to be done.
            let _ = std::fs::remove_file(path);
        }
    }

    fn write_events(&self, mut events: Vec<Entry>) {
        let result = self.transaction(|connection| {
            for entry in &mut events {
                if let Entry::Event { event, .. } = entry {
                    event.id = tables::insert_event(connection, event)?;
                }
            }
            Ok(())
        });
        let result = result.map_err(|error| LogError::from(DatabaseError::of(&self.path, &error)));
        for entry in events {
            if let Entry::Event { event, ack, .. } = entry {
                // Whoever waits may have gone away meanwhile; what was written stays written.
                let _ = ack.send(result.clone().map(|()| event.id));
            }
        }
    }

    /// All of it is in the database afterwards, or nothing.
    fn transaction<T>(
        &self,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let connection = &self.connection;
        let step = || {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let written = write(connection)?;
            connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(written)
        };
        step().inspect_err(|_| {
            // A transaction that SQLite has rolled back itself cannot be rolled back again.
            let _ = connection.execute_batch("ROLLBACK");
        })
    }

    /// Removes a few of the rows that need not be kept.
    fn remove_surplus(&mut self) {
        self.written = 0;
        let mut counts = std::mem::take(&mut self.counts);
        let more = self.transaction(|connection| self.retention.step(connection, &mut counts));
        self.counts = counts;
        // What cannot be removed now can be after the next rows.
        self.surplus = more.unwrap_or(false);
    }
}
