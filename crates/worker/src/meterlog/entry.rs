//! What the log is given to write.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uncia_record::{Instance, Invocation, Span};

use super::LogError;

/// An asynchronous invocation that is accepted, with its payload or what is known of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event<P> {
    /// Given by the log.
    pub id: i64,
    pub function: String,
    /// The identity of the function, which another of the same name does not have. Empty in events
    /// of earlier versions, which any function of that name may run.
    pub function_key: String,
    pub request_id: String,
    pub invocation: String,
    /// The invocation that it was sent from.
    pub parent: Option<String>,
    /// The stage of a chain that it is.
    pub stage: Option<String>,
    /// The number of the last attempt that wrote a row; 0 before the first.
    pub attempt: i64,
    /// Attempts that ran and failed.
    pub failures: i64,
    pub payload: P,
    pub client_context: Option<String>,
    /// Unix ns.
    pub accepted: i64,
}

/// An event as it comes in.
pub(crate) type AcceptedEvent = Event<Bytes>;

/// An event that an earlier worker left; its payload stays in the log.
pub(crate) type WaitingEvent = Event<PayloadSize>;

/// The length of a payload in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PayloadSize(pub i64);

/// What an attempt means for the event that it was an attempt of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum EventUpdate {
    /// It is done, well or for good, and forgotten.
    Done { id: i64 },
    /// The attempt ran and failed; another follows.
    Failed { id: i64, attempt: i64, failures: i64 },
    /// The attempt does not count: it did not run, or the platform ended it. Another follows.
    Attempted { id: i64, attempt: i64 },
}

/// A time in which an instance served nothing, in Unix ns.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct IdleInterval {
    pub instance: Arc<str>,
    pub start: i64,
    pub end: i64,
}

/// An invocation with all that is written in its transaction.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Recorded {
    pub row: Invocation,
    pub spans: Vec<Span>,
    /// The interval that the invocation ended.
    pub idle: Option<IdleInterval>,
    /// What becomes of the asynchronous invocation that this was an attempt of.
    pub event: Option<EventUpdate>,
}

/// A place in a feed of changes that a trigger has passed: nothing before it is begun again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Passed {
    /// The trigger's name.
    pub trigger: Arc<str>,
    pub position: i64,
    /// Of the change there: by this it is seen when another has its position.
    pub digest: String,
}

/// A trigger as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeptTrigger {
    pub name: String,
    /// JSON.
    pub definition: String,
    pub position: i64,
    /// Of which feed that is, if it was connected to one.
    pub feed: Option<String>,
    /// Of the change at that position, if it is known.
    pub digest: Option<String>,
}

/// What becomes of a trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TriggerUpdate {
    /// It is made, or made anew.
    Put(KeptTrigger),
    Passed(Passed),
    /// The trigger with this name is gone.
    Removed(String),
}

/// What goes through the journal into the database.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) enum Record {
    Invocation(Arc<Recorded>),
    /// An instance, or its new state.
    Instance(Box<Instance>),
    /// The events with these ids are forgotten.
    DropEvents(Vec<i64>),
}

/// A record on its way into the database.
pub(super) struct Row {
    pub record: Record,
    /// Its number in the journal; none if it could not be written there, and nobody waits for it.
    pub number: Option<u64>,
    /// Its place among those that may wait.
    pub _room: Room,
}

/// Receives the result of a write by the writer's thread.
pub(super) type Ack<T> = oneshot::Sender<Result<T, LogError>>;

/// A part of the room in the queue; free again when it is dropped.
pub(super) type Room = OwnedSemaphorePermit;

pub(super) enum Entry {
    Row(Box<Row>),
    Event {
        event: Box<AcceptedEvent>,
        /// The change that it came from.
        change: Option<Passed>,
        ack: Ack<i64>,
        _room: Room,
    },
    Trigger {
        update: TriggerUpdate,
        ack: Ack<()>,
    },
    /// Answered when every row before it is in the database, or cannot be now, with the number of
    /// rows that a full disk holds up.
    Barrier(Ack<usize>),
}
