//! The platform's own log: invocations, spans and instances, durable before an answer goes out, and
//! the asynchronous invocations that were accepted and are not done.
//!
//! A row is written to the [`journal`], by whoever has it, and then the answer may go out. One thread
//! ([`writer`]) brings it into the database, many in a transaction, while nobody waits; whoever reads
//! waits for that ([`MeterLog::barrier`]), and has a connection of their own. Accepted events go to
//! the database at once, where their payloads are read.

mod entry;
mod journal;
mod log;
mod queue;
mod reader;
mod retention;
mod schema;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(test)]
pub(crate) use entry::PayloadSize;
pub(crate) use entry::{
    AcceptedEvent, EventUpdate, IdleInterval, KeptTrigger, Passed, Recorded, TriggerUpdate,
    WaitingEvent,
};
pub(crate) use journal::FORMAT as JOURNAL_FORMAT;
pub(crate) use log::{Keeping, MeterLog};
pub(crate) use reader::{MAX_PAGE_ROWS, Page, Query, Reader};
pub(crate) use retention::Retention;

use crate::store::DatabaseError;

/// Why the log could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Journal(#[from] journal::JournalError),
    #[error("the thread that writes the log cannot be started: {0}")]
    Thread(String),
    #[error("the log has fallen behind: too much waits for the disk already")]
    Behind,
    #[error("the log is closed")]
    Closed,
}
