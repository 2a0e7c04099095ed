//! The log against real files, a real disk that is full, and real kills.

mod aside;
mod damage;
mod earlier;
mod events;
mod instances;
mod journal;
mod kills;
mod migration;
mod pages;
mod returned;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use uncia_record::{Instance, Invocation, Span};

use super::writer::Writer;
use super::*;

pub(super) fn open(state: &Path) -> MeterLog {
    MeterLog::open(state, Retention::default(), Keeping::Durable).unwrap()
}

/// Its journal's files are as long as a few rows.
pub(super) fn open_with_short_files(state: &Path) -> MeterLog {
    MeterLog::open_with(state, Retention::default(), Keeping::Durable, 4096, Writer::run).unwrap()
}

pub(super) fn reader(state: &Path) -> Reader {
    Reader::open(&state.join("meter.sqlite")).unwrap()
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(super) fn invocation(name: &str) -> Recorded {
    let row = Invocation {
        function: Arc::from("f"),
        invocation: name.to_owned(),
        attempt: 1,
        outcome: Arc::from("ok"),
        ..Invocation::default()
    };
    Recorded { row, ..Recorded::default() }
}

pub(super) fn span(name: &str) -> Span {
    Span { name: Arc::from(name), clock: Arc::from("platform"), ..Span::default() }
}

pub(super) fn idle(instance: &str, start: i64) -> IdleInterval {
    IdleInterval { instance: Arc::from(instance), start, end: start + 1 }
}

/// An instance that became ready at 10.
pub(super) fn instance(name: &str) -> Instance {
    Instance {
        function: Arc::from("f"),
        instance: Arc::from(name),
        started: 1,
        initialized: Some(10),
        invocations: Some(0),
        ..Instance::default()
    }
}

pub(super) fn ended(name: &str) -> Instance {
    Instance { ended: Some(1_000), end_reason: Some(Arc::from("keep_alive")), ..instance(name) }
}

pub(super) fn event(name: &str) -> AcceptedEvent {
    AcceptedEvent {
        id: 0,
        function: "f".to_owned(),
        function_key: "key-f".to_owned(),
        parent: Some(format!("parent-{name}")),
        stage: None,
        request_id: format!("request-{name}"),
        invocation: name.to_owned(),
        attempt: 0,
        failures: 0,
        payload: Bytes::from(format!("payload of {name}")),
        client_context: None,
        accepted: 7,
    }
}

pub(super) fn record(log: &MeterLog, recorded: Recorded) -> Result<(), LogError> {
    log.invocation(Arc::new(recorded))
}

/// Another program that is about to write to the database: nobody else can until this is dropped.
pub(super) fn hold(state: &Path) -> rusqlite::Connection {
    let database = rusqlite::Connection::open(state.join("meter.sqlite")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    database
}

pub(super) fn accept(log: &MeterLog, event: AcceptedEvent) -> i64 {
    block_on(log.accept(event, None)).unwrap()
}

pub(super) fn barrier(log: &MeterLog) {
    assert_eq!(block_on(log.barrier()), Ok(0));
}

/// All rows, a page of `limit` at a time.
pub(super) fn all<T>(limit: usize, read: impl Fn(&Query) -> Result<Page<T>, LogError>) -> Vec<T> {
    let mut query = Query { limit, ..Query::default() };
    let mut rows = Vec::new();
    loop {
        let page = read(&query).unwrap();
        assert!(page.rows.len() <= limit);
        assert!(!page.more || page.last > query.after, "no progress");
        rows.extend(page.rows);
        if !page.more {
            return rows;
        }
        query.after = page.last;
    }
}

pub(super) fn names(state: &Path) -> Vec<String> {
    let reader = reader(state);
    all(1_000, |query| reader.invocations(query)).into_iter().map(|row| row.invocation).collect()
}
