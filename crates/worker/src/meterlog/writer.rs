//! The thread that writes the log.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use uncia_record::Instance;

use super::entry::Entry;
use super::queue::{Queue, Taken};
use super::retention::Retention;
use super::schema::insert_idle_interval;
use super::{LogError, tables};
use crate::store::DatabaseError;

/// Entries nobody waits for that are kept while the disk is full, to be written when it is not.
const BACKLOG: usize = 10_000;
/// Rows that are written between two looks at what need not be kept any more.
const RETENTION_ROWS: usize = 500;
/// While rows are left that need not be kept, the thread waits so long for entries before it
/// removes a few of them.
const RETENTION_PAUSE: Duration = Duration::from_millis(20);

/// More than there are different statements, so that each is prepared once.
const STATEMENTS: usize = 32;

/// What nobody waits for, kept until it can be written.
enum Kept {
    Instance(Box<Instance>),
    DropEvent(i64),
}

pub struct Writer {
    path: PathBuf,
    connection: Connection,
    retention: Retention,
    backlog: Vec<Kept>,
    /// Rows written since the last look at what need not be kept.
    written: usize,
    /// Whether that look found more than it removed.
    surplus: bool,
}

impl Writer {
    pub fn new(path: PathBuf, connection: Connection, retention: Retention) -> Self {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        // A first look comes soon.
        Self { path, connection, retention, backlog: Vec::new(), written: 0, surplus: true }
    }

    /// Writes what comes until the queue is closed and empty.
    pub fn run(mut self, queue: &Queue) {
        let mut batch = Vec::new();
        loop {
            match queue.take(&mut batch, self.surplus.then_some(RETENTION_PAUSE)) {
                Taken::Entries => self.write(&mut batch),
                Taken::Nothing => self.remove_surplus(),
                Taken::Closed => break,
            }
            if self.written >= RETENTION_ROWS {
                self.remove_surplus();
            }
        }
        if !self.backlog.is_empty() {
            self.write(&mut batch);
        }
        // So that the file is whole without its journal. The next start does it otherwise.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Writes a batch in one transaction, and tells those who wait for it.
    fn write(&mut self, batch: &mut Vec<Entry>) {
        let result = self.commit(batch).map_err(|error| {
            self.roll_back();
            LogError::from(DatabaseError::of(&self.path, &error))
        });
        if result.is_ok() {
            self.backlog.clear();
        }
        for entry in batch.drain(..) {
            let result = result.clone();
            // Whoever waits may have gone away meanwhile; what was written stays written.
            match entry {
                Entry::Invocation { on_commit, .. } => on_commit.call(result),
                Entry::Event { event, ack, .. } => drop(ack.send(result.map(|()| event.id))),
                Entry::Barrier(ack) => drop(ack.send(result)),
                Entry::Instance(row) => self.keep(Kept::Instance(row), &result),
                Entry::DropEvent(id) => self.keep(Kept::DropEvent(id), &result),
            }
        }
    }

    /// Gives the events among the entries their ids.
    fn commit(&mut self, batch: &mut [Entry]) -> rusqlite::Result<()> {
        let connection = &self.connection;
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for kept in &self.backlog {
            match kept {
                Kept::Instance(row) => tables::put_instance(connection, row)?,
                Kept::DropEvent(id) => tables::delete_event(connection, *id)?,
            }
        }
        let mut written = 0;
        for entry in batch {
            match entry {
                Entry::Invocation { recorded, .. } => {
                    tables::insert_invocation(connection, &recorded.row)?;
                    for span in &recorded.spans {
                        tables::insert_span(connection, &recorded.row.function, span)?;
                    }
                    if let Some(idle) = &recorded.idle {
                        insert_idle_interval(connection, &idle.instance, idle.start, idle.end)?;
                    }
                    if let Some(update) = recorded.event {
                        tables::update_event(connection, update)?;
                    }
                    written += 1 + recorded.spans.len();
                }
                Entry::Event { event, .. } => {
                    event.id = tables::insert_event(connection, event)?;
                }
                Entry::Instance(row) => {
                    tables::put_instance(connection, row)?;
                    written += 1;
                }
                Entry::DropEvent(id) => tables::delete_event(connection, *id)?,
                Entry::Barrier(_) => {}
            }
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        self.written += written;
        Ok(())
    }

    fn keep(&mut self, entry: Kept, result: &Result<(), LogError>) {
        // What does not fit any more, the next start makes good: it ends the instances that are
        // left, and drops the events of functions that are gone.
        if result.is_err() && self.backlog.len() < BACKLOG {
            self.backlog.push(entry);
        }
    }

    /// Removes a few of the rows that need not be kept.
    fn remove_surplus(&mut self) {
        self.written = 0;
        let connection = &self.connection;
        let step = || -> rusqlite::Result<bool> {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let more = self.retention.step(connection)?;
            connection.prepare_cached("COMMIT")?.execute([])?;
            Ok(more)
        };
        // What cannot be removed now can be after the next rows.
        self.surplus = step().unwrap_or_else(|_| {
            self.roll_back();
            false
        });
    }

    fn roll_back(&self) {
        // A transaction that SQLite has rolled back itself cannot be rolled back again.
        let _ = self.connection.execute_batch("ROLLBACK");
    }
}
