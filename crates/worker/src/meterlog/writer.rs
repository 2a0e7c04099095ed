//! The thread that writes the log.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use uncia_record::Instance;

use super::entry::Entry;
use super::queue::{Queue, Taken};
use super::retention::{Counts, Retention};
use super::schema::insert_idle_interval;
use super::{LogError, tables};
use crate::store::DatabaseError;

/// Entries nobody waits for that are kept while the disk is full, to be written when it is not.
const BACKLOG: usize = 10_000;
/// Kept entries of one transaction: all that a disk which is still full writes in vain.
const BACKLOG_BATCH: usize = 256;
/// While there are kept entries, the thread waits so long for others before it tries them again.
const BACKLOG_PAUSE: Duration = Duration::from_secs(1);
/// Rows that are written between two looks at what need not be kept any more.
const RETENTION_ROWS: usize = 500;
/// While rows are left that need not be kept, the thread waits so long for entries before it
/// removes a few of them.
const RETENTION_PAUSE: Duration = Duration::from_millis(20);

/// More than there are different statements, so that each is prepared once.
const STATEMENTS: usize = 48;

/// What nobody waits for, kept until it can be written.
enum Kept {
    Instance(Box<Instance>),
    DropEvent(i64),
}

pub(super) struct Writer {
    path: PathBuf,
    connection: Connection,
    retention: Retention,
    backlog: VecDeque<Kept>,
    counts: Counts,
    /// Rows written since the last look at what need not be kept.
    written: usize,
    /// Whether that look found more than it removed.
    surplus: bool,
}

impl Writer {
    pub(super) fn new(path: PathBuf, connection: Connection, retention: Retention) -> Self {
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        Self {
            path,
            connection,
            retention,
            backlog: VecDeque::new(),
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
                (!self.backlog.is_empty()).then_some(BACKLOG_PAUSE)
            };
            match queue.take(&mut batch, pause) {
                Taken::Entries => self.write(&mut batch),
                Taken::Nothing => {
                    self.write_backlog();
                    self.remove_surplus();
                }
                Taken::Closed => break,
            }
            if self.written >= RETENTION_ROWS {
                self.remove_surplus();
            }
        }
        self.write_backlog();
        // So that the file is whole without its journal. The next start does it otherwise.
        let _ = self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    }

    /// Writes a batch in one transaction, and tells those who wait for it.
    fn write(&mut self, batch: &mut Vec<Entry>) {
        self.write_backlog();
        if !self.backlog.is_empty() {
            // What nobody waits for stays in its order.
            for entry in batch.extract_if(.., |entry| entry.is_kept()) {
                self.keep(entry);
            }
        }
        let result = self.commit(batch).map_err(|error| {
            self.roll_back();
            LogError::from(DatabaseError::of(&self.path, &error))
        });
        for entry in batch.drain(..) {
            // Whoever waits may have gone away meanwhile; what was written stays written.
            match entry {
                Entry::Invocation { recorded, on_commit, .. } => {
                    if let (Ok(()), Some(idle)) = (&result, &recorded.idle) {
                        self.counts.add(&idle.instance);
                    }
                    on_commit.call(result.clone());
                }
                Entry::Event { event, ack, .. } => {
                    drop(ack.send(result.clone().map(|()| event.id)));
                }
                // Those whose invocations are not written know. What is written can be read.
                Entry::Barrier(ack) => drop(ack.send(Ok(self.backlog.len()))),
                Entry::Instance(_) | Entry::DropEvent(_) if result.is_err() => self.keep(entry),
                Entry::Instance(row) => self.counts.note(&row),
                Entry::DropEvent(_) => {}
            }
        }
    }

    /// Gives the events among the entries their ids.
    fn commit(&mut self, batch: &mut [Entry]) -> rusqlite::Result<()> {
        if batch.iter().all(|entry| matches!(entry, Entry::Barrier(_))) {
            return Ok(());
        }
        let connection = &self.connection;
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
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

    fn keep(&mut self, entry: Entry) {
        let kept = match entry {
            Entry::Instance(row) => Kept::Instance(row),
            Entry::DropEvent(id) => Kept::DropEvent(id),
            // Whoever waits for these knows.
            Entry::Invocation { .. } | Entry::Event { .. } | Entry::Barrier(_) => return,
        };
        // What does not fit any more, the next start makes good: it ends the instances that are
        // left, and drops the events of functions that are gone.
        if self.backlog.len() < BACKLOG {
            self.backlog.push_back(kept);
        }
    }

    /// Writes what was kept, as far as it can be, in the order in which it came.
    fn write_backlog(&mut self) {
        while !self.backlog.is_empty() {
            let count = self.backlog.len().min(BACKLOG_BATCH);
            if self.commit_kept(count).is_err() {
                self.roll_back();
                return;
            }
            for kept in self.backlog.drain(..count) {
                self.written += 1;
                if let Kept::Instance(row) = kept {
                    self.counts.note(&row);
                }
            }
        }
    }

    fn commit_kept(&self, count: usize) -> rusqlite::Result<()> {
        let connection = &self.connection;
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for kept in self.backlog.iter().take(count) {
            match kept {
                Kept::Instance(row) => tables::put_instance(connection, row)?,
                Kept::DropEvent(id) => tables::delete_event(connection, *id)?,
            }
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Removes a few of the rows that need not be kept.
    fn remove_surplus(&mut self) {
        self.written = 0;
        let (connection, counts) = (&self.connection, &mut self.counts);
        let mut step = || -> rusqlite::Result<bool> {
            connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
            let more = self.retention.step(connection, counts)?;
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
