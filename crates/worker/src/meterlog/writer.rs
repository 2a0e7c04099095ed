//! The thread that writes the log.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use rusqlite::{Connection, params};
use tokio::sync::oneshot;
use uncia_record::{Instance, Invocation, Span};

use super::LogError;
use super::tables;
use crate::clock;

/// Most entries of one commit; bounds how long the first of them waits.
const BATCH: usize = 256;
/// Entries nobody waits for that are kept while the disk is full, to be written when it is not.
const BACKLOG: usize = 10_000;

/// An asynchronous invocation that was accepted and is not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedEvent {
    pub id: i64,
    pub function: String,
    pub request_id: String,
    pub invocation: String,
    /// Attempts made so far.
    pub attempt: i64,
    pub failures: i64,
    pub payload: Bytes,
    pub client_context: Option<String>,
    /// Unix ns.
    pub accepted: i64,
}

/// An invocation with its spans, as it is written in one transaction.
#[derive(Debug, Default)]
pub struct Recorded {
    pub row: Invocation,
    pub spans: Vec<Span>,
    pub idle: Option<super::IdleInterval>,
    pub event: Option<super::EventUpdate>,
}

type Ack<T> = oneshot::Sender<Result<T, LogError>>;

enum Entry {
    Invocation(Box<Recorded>, Box<dyn FnOnce(Result<(), LogError>) + Send>),
    Instance(Box<Instance>),
    Event(Box<AcceptedEvent>, Ack<i64>),
    DropEvent(i64),
    /// Answered when everything before it is committed.
    Barrier(Ack<()>),
    Close,
}

/// The writing end of the log; shared by all.
pub struct MeterLog {
    path: PathBuf,
    entries: Sender<Entry>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl MeterLog {
    /// Opens the log in the state folder. Instances that an earlier worker left running, which are
    /// gone by now, are recorded as such; its accepted events that were not done are returned.
    pub fn open(state: &Path) -> Result<(Self, Vec<super::WaitingEvent>), LogError> {
        let path = state.join("meter.sqlite");
        let database = |error: rusqlite::Error| LogError::Database {
            path: path.clone(),
            message: error.to_string(),
        };
        let connection = tables::open(&path).map_err(database)?;
        let version: i64 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(database)?;
        match version {
            0 => connection.execute_batch(tables::TABLES).map_err(database)?,
            1 => connection.execute_batch(tables::FROM_1).map_err(database)?,
            tables::VERSION => {}
            found => return Err(LogError::Version { path, found }),
        }
        close_left_instances(&connection).map_err(database)?;
        let left = left_events(&connection).map_err(database)?;
        let (entries, received) = channel();
        let thread = std::thread::Builder::new()
            .name("meter-log".to_owned())
            .spawn({
                let path = path.clone();
                move || Writer { path, connection, backlog: Vec::new() }.run(&received)
            })
            .map_err(|error| LogError::Database {
                path: path.clone(),
                message: format!("the thread that writes it cannot be started: {error}"),
            })?;
        Ok((Self { path, entries, thread: Mutex::new(Some(thread)) }, left))
    }

    /// The database, for readers.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn invocation(
        &self,
        recorded: Recorded,
        on_commit: Box<dyn FnOnce(Result<(), LogError>) + Send>,
    ) {
        if let Err(error) = self.entries.send(Entry::Invocation(Box::new(recorded), on_commit))
            && let Entry::Invocation(_, on_commit) = error.0
        {
            on_commit(Err(LogError::Closed));
        }
    }

    /// Writes an event that is about to be accepted; returns its id when it is committed.
    pub async fn accept(&self, event: AcceptedEvent) -> Result<i64, LogError> {
        self.ask(|ack| Entry::Event(Box::new(event), ack)).await
    }

    pub fn read_payload(&self, id: i64) -> Result<Option<Bytes>, LogError> {
        let database = |error: rusqlite::Error| LogError::Database {
            path: self.path.clone(),
            message: error.to_string(),
        };
        let connection = tables::open(&self.path).map_err(database)?;
        use rusqlite::OptionalExtension;
        connection
            .query_row("SELECT payload FROM events WHERE id = ?1", [id], |row| {
                row.get::<_, Vec<u8>>(0)
            })
            .optional()
            .map(|payload| payload.map(Bytes::from))
            .map_err(database)
    }

    /// Forgets an event, some time soon.
    pub fn drop_event(&self, id: i64) {
        // After closing, the event stays for the next start.
        let _ = self.entries.send(Entry::DropEvent(id));
    }

    /// Writes the state of an instance, some time soon.
    pub fn instance(&self, row: Instance) {
        // After closing, the next start records that the instance is gone.
        let _ = self.entries.send(Entry::Instance(Box::new(row)));
    }

    /// Returns when everything that was written before is committed.
    pub async fn barrier(&self) -> Result<(), LogError> {
        self.ask(Entry::Barrier).await
    }

    /// Writes what is left and ends the thread.
    pub fn close(&self) {
        let _ = self.entries.send(Entry::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was reported by the panic hook already.
            let _ = thread.join();
        }
    }

    async fn ask<T>(&self, entry: impl FnOnce(Ack<T>) -> Entry) -> Result<T, LogError> {
        let (ack, answer) = oneshot::channel();
        self.entries.send(entry(ack)).map_err(|_| LogError::Closed)?;
        answer.await.map_err(|_| LogError::Closed)?
    }
}

fn close_left_instances(connection: &Connection) -> rusqlite::Result<usize> {
    connection.execute(
        "UPDATE instances SET ended = ?1, end_reason = 'crash',
                id = id + (SELECT MAX(id) FROM instances)
         WHERE ended IS NULL",
        [clock::unix_ns()],
    )?;
    // The ids that follow must be greater than those just given.
    connection.execute(
        "UPDATE sqlite_sequence SET seq = (SELECT MAX(id) FROM instances)
         WHERE name = 'instances' AND EXISTS (SELECT 1 FROM instances)",
        [],
    )
}

fn left_events(connection: &Connection) -> rusqlite::Result<Vec<super::WaitingEvent>> {
    let mut statement = connection.prepare("SELECT * FROM events ORDER BY id")?;
    let rows = statement.query_map([], |row| {
        Ok(super::WaitingEvent {
            id: row.get("id")?,
            function: row.get("function")?,
            request_id: row.get("request_id")?,
            invocation: row.get("invocation")?,
            attempt: row.get("attempt")?,
            failures: 0,
            payload_bytes: row.get::<_, Vec<u8>>("payload")?.len(),
            client_context: row.get("client_context")?,
        })
    })?;
    rows.collect()
}

struct Writer {
    path: PathBuf,
    connection: Connection,
    /// What nobody waits for and could not be written yet.
    backlog: Vec<Entry>,
}

impl Writer {
    fn run(mut self, entries: &Receiver<Entry>) {
        let mut batch = Vec::new();
        while let Ok(first) = entries.recv() {
            batch.push(first);
            batch.extend(entries.try_iter().take(BATCH - 1));
            if !self.write(&mut batch) {
                return;
            }
        }
    }

    /// Writes a batch in one transaction, and answers; false when it was the last.
    fn write(&mut self, batch: &mut Vec<Entry>) -> bool {
        let result = self.commit(batch).map_err(|error| LogError::Database {
            path: self.path.clone(),
            message: error.to_string(),
        });
        match &result {
            Ok(_) => self.backlog.clear(),
            // A transaction that SQLite has rolled back itself cannot be rolled back again.
            Err(_) => drop(self.connection.execute_batch("ROLLBACK")),
        }
        let mut ids = result.as_ref().cloned().unwrap_or_default().into_iter();
        let mut open = true;
        for entry in batch.drain(..) {
            let answer = result.as_ref().map(|_| ()).map_err(LogError::clone);
            // Whoever asked may have gone away meanwhile; what was written stays written.
            match entry {
                Entry::Invocation(_, on_commit) => on_commit(answer),
                Entry::Barrier(ack) => drop(ack.send(answer)),
                Entry::Event(_, ack) => {
                    let id = ids.next().unwrap_or_default();
                    drop(ack.send(answer.map(|()| id)));
                }
                entry @ (Entry::Instance(_) | Entry::DropEvent(_)) => {
                    if answer.is_err() && self.backlog.len() < BACKLOG {
                        self.backlog.push(entry);
                    }
                }
                Entry::Close => open = false,
            }
        }
        open
    }

    /// Returns the ids of the events among the entries.
    fn commit(&mut self, batch: &[Entry]) -> rusqlite::Result<Vec<i64>> {
        let connection = &self.connection;
        let mut events = Vec::new();
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for entry in self.backlog.iter().chain(batch) {
            match entry {
                Entry::Invocation(recorded, _) => {
                    tables::insert_invocation(connection, &recorded.row)?;
                    for span in &recorded.spans {
                        tables::insert_span(connection, &recorded.row.function, span)?;
                    }
                    match recorded.event {
                        Some(super::EventUpdate::Done { id }) => drop_event(connection, id)?,
                        Some(
                            super::EventUpdate::Failed { id, .. }
                            | super::EventUpdate::Attempted { id, .. },
                        ) => {
                            connection
                                .prepare_cached("UPDATE events SET attempt = ?2 WHERE id = ?1")?
                                .execute(params![id, recorded.row.attempt])?;
                        }
                        None => {}
                    }
                }
                Entry::Instance(row) => {
                    tables::put_instance(connection, row)?;
                }
                Entry::Event(event, _) => {
                    connection
                        .prepare_cached(
                            "INSERT INTO events (function, request_id, invocation, attempt,
                                                 payload, client_context, accepted)
                             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                        )?
                        .execute(params![
                            event.function,
                            event.request_id,
                            event.invocation,
                            event.attempt,
                            &event.payload[..],
                            event.client_context,
                            event.accepted,
                        ])?;
                    events.push(connection.last_insert_rowid());
                }
                Entry::DropEvent(id) => drop_event(connection, *id)?,
                Entry::Barrier(_) | Entry::Close => {}
            }
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(events)
    }
}

fn drop_event(connection: &Connection, id: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM events WHERE id = ?1")?.execute([id])?;
    Ok(())
}
