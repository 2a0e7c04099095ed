//! The thread that brings rows and events into the database.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::entry::{Ack, Entry, Record, Row};
use super::journal::{self, Journal, Noted};
use super::queue::{Queue, Taken};
use super::retention::{Counts, Retention};
use super::{LogError, tables};
use crate::store::DatabaseError;

/// Rows of one transaction: all that a disk which is full writes in vain, and all that an event or
/// a barrier waits for.
const BATCH_ROWS: usize = 256;
/// Rows after which whoever answers requests comes first: a batch would keep a CPU for too long.
const YIELD_ROWS: usize = 16;
/// While there are rows that the database does not take, they are tried again after this time.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// Rows that are written between two looks at what need not be kept any more.
const RETENTION_ROWS: usize = 500;
/// While rows are left that need not be kept, the thread waits so long for entries before it
/// removes a few of them.
const RETENTION_PAUSE: Duration = Duration::from_millis(20);

/// More than there are different statements, so that each is prepared once.
const STATEMENTS: usize = 48;

/// Who waits for rows to be in the database.
struct Barrier {
    /// How many have been brought there then.
    rows: u64,
    /// Attempts that were made before.
    attempts: u64,
    ack: Ack<usize>,
}

pub(super) struct Writer {
    path: PathBuf,
    connection: Connection,
    journal: Arc<Mutex<Journal>>,
    retention: Retention,
    /// Rows that are not in the database yet, in their order.
    rows: VecDeque<Box<Row>>,
    /// Rows that have been brought there.
    committed: u64,
    /// When the database last refused them, if it has since.
    refused: Option<Instant>,
    /// Attempts to bring rows there.
    attempts: u64,
    barriers: Vec<Barrier>,
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
            committed: 0,
            refused: None,
            attempts: 0,
            barriers: Vec::new(),
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
            let pause = if self.rows.is_empty() {
                self.surplus.then_some(RETENTION_PAUSE)
            } else {
                let left = |refused: Instant| RETRY_PAUSE.saturating_sub(refused.elapsed());
                Some(self.refused.map_or(Duration::ZERO, left))
            };
            match queue.take(&mut batch, pause) {
                Taken::Entries => self.accept(&mut batch),
                Taken::Nothing if self.rows.is_empty() => self.remove_surplus(),
                Taken::Nothing => {}
                Taken::Closed => break,
            }
            if self.refused.is_none_or(|refused| refused.elapsed() >= RETRY_PAUSE) {
                self.write_rows();
            }
            // Before whoever waits goes on: what comes next finds the files as they stay.
            if self.refused.is_none() {
                self.make_next_file();
            }
            self.answer_barriers();
            if self.written >= RETENTION_ROWS {
                self.remove_surplus();
            }
        }
        // What the database does not take now, the next start brings there from the journal.
        while !self.rows.is_empty() && self.refused.is_none() {
            self.write_rows();
        }
        self.answer_barriers();
        let note = self.journal().last_note();
        if tables::set_noted(&self.connection, &note).is_ok() {
            self.journal().finish();
        }
        // So that the file is whole without its journal. The next start does it otherwise.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Takes over what came; events, for which somebody waits, are written.
    fn accept(&mut self, batch: &mut Vec<Entry>) {
        let mut events = Vec::new();
        for entry in batch.drain(..) {
            match entry {
                Entry::Row(row) => self.rows.push_back(row),
                Entry::Event { .. } | Entry::Trigger { .. } => events.push(entry),
                Entry::Barrier(ack) => {
                    let rows = self.committed + self.rows.len() as u64;
                    self.barriers.push(Barrier { rows, attempts: self.attempts, ack });
                }
            }
        }
        if !events.is_empty() {
            self.write_events(events);
        }
    }

    /// Answers those whose rows are there, or have been refused since they came.
    fn answer_barriers(&mut self) {
        let (committed, refused, attempts) =
            (self.committed, self.refused.is_some(), self.attempts);
        let reached = |barrier: &mut Barrier| {
            barrier.rows <= committed || refused && barrier.attempts < attempts
        };
        for barrier in self.barriers.extract_if(.., reached) {
            let held_up = barrier.rows.saturating_sub(committed);
            // Whoever waits may have gone away meanwhile.
            let _ = barrier.ack.send(Ok(usize::try_from(held_up).unwrap_or(usize::MAX)));
        }
    }

    /// Brings the oldest rows into the database, one transaction's worth.
    fn write_rows(&mut self) {
        let count = self.rows.len().min(BATCH_ROWS);
        if count == 0 {
            return;
        }
        let behind = self.rows.len() > BATCH_ROWS || !self.barriers.is_empty();
        self.attempts += 1;
        let noted = self.journal().to_note();
        let written = self.transaction(|connection| {
            let (mut written, mut applied) = (0, None);
            for (index, row) in self.rows.iter().take(count).enumerate() {
                written += tables::insert(connection, &row.record)?;
                applied = row.number.or(applied);
                if !behind && index % YIELD_ROWS == YIELD_ROWS - 1 {
                    std::thread::yield_now();
                }
            }
            if let Some(number) = applied {
                tables::set_applied(connection, number)?;
                tables::set_noted(connection, &noted)?;
            }
            Ok((written, applied))
        });
        let Ok((written, applied)) = written else {
            self.refused = Some(Instant::now());
            return;
        };
        self.refused = None;
        self.written += written;
        self.committed += count as u64;
        for row in self.rows.drain(..count) {
            match &row.record {
                Record::Invocation(recorded) => {
                    if let Some(idle) = &recorded.idle {
                        self.counts.add(&idle.instance);
                    }
                }
                Record::Instance(row) => self.counts.note(row),
                Record::DropEvents(_) => {}
            }
        }
        if let Some(applied) = applied {
            self.remove_files(applied);
        }
    }

    /// Removes the files of the journal that nobody needs any more.
    fn remove_files(&self, applied: u64) {
        let done = self.journal().applied(applied);
        for path in done {
            // What cannot be removed is read after a crash, and found to be done.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Makes the journal's next file if it is time to, so that no request has to.
    fn make_next_file(&self) {
        let wanted = self.journal().wants_next_file();
        let Some((folder, name)) = wanted else { return };
        // Without another file the present one goes on; after the next rows it is tried again.
        let Ok(next) = journal::create(&folder, name) else { return };
        let noted = Noted { spare: Some(name), ..self.journal().to_note() };
        // The database knows it before it holds anything, so that it is missed if it is gone.
        if tables::set_noted(&self.connection, &noted).is_ok() {
            self.journal().set_next_file(next);
        } else {
            let _ = std::fs::remove_file(next.path);
        }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        // It is whole after every statement, so a panic elsewhere does not spoil it.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_events(&self, mut events: Vec<Entry>) {
        let result = self.transaction(|connection| {
            for entry in &mut events {
                match entry {
                    Entry::Event { event, change, .. } => {
                        event.id = tables::insert_event(connection, event)?;
                        if let Some(passed) = change {
                            tables::pass_change(connection, passed)?;
                        }
                    }
                    Entry::Trigger { update, .. } => tables::update_trigger(connection, update)?,
                    Entry::Row(_) | Entry::Barrier(_) => {}
                }
            }
            Ok(())
        });
        let result = result.map_err(|error| LogError::from(DatabaseError::of(&self.path, &error)));
        for entry in events {
            // Whoever waits may have gone away meanwhile; what was written stays written.
            match entry {
                Entry::Event { event, ack, .. } => {
                    let _ = ack.send(result.clone().map(|()| event.id));
                }
                Entry::Trigger { ack, .. } => {
                    let _ = ack.send(result.clone());
                }
                Entry::Row(_) | Entry::Barrier(_) => {}
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
