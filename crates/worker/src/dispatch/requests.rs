//! Requests between their arrival and their answer.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::oneshot;
use uncia_clock::Moment;
use uncia_policy::RequestId;

use super::Completion;
use super::events::QueuedEvent;
use super::message::Work;
use crate::function::Function;
use crate::instance::{HttpHead, Passage, Request};

/// How often a request may be assigned to instances that are gone before they are given it.
const MAX_UNDELIVERED: u32 = 3;

/// A request between its arrival and its answer.
pub(super) struct PendingRequest {
    pub function: Arc<Function>,
    pub request_id: Arc<str>,
    /// The name under which it is logged.
    pub invocation: Arc<str>,
    /// The request that caused this one.
    pub parent: Option<Arc<str>>,
    /// The stage of a chain that it is.
    pub stage: Option<Arc<str>>,
    pub client_context: Option<Arc<str>>,
    /// The ARN that it was invoked by, where that is not the version's own.
    pub invoked_arn: Option<Arc<str>>,
    /// None if it is to be read from the log.
    pub payload: Option<Bytes>,
    pub payload_bytes: usize,
    /// The head of an HTTP request, if it is for a server.
    pub head: Option<Arc<HttpHead>>,
    /// By which a body or an answer may pass piece by piece. What is left of it is dropped with the
    /// request, after the row is in the log.
    pub passage: Option<Arc<Passage>>,
    /// The number of the current attempt, from 1.
    pub attempt: i64,
    pub accepted: Moment,
    /// How often it was assigned in vain.
    pub undelivered: u32,
    pub source: Source,
}

/// Where a request comes from, and its answer goes.
pub(super) enum Source {
    Client(oneshot::Sender<Completion>),
    Event(Box<QueuedEvent>),
    /// Taken out of it.
    None,
}

impl PendingRequest {
    /// The next attempt of an accepted event.
    pub(super) fn of_event(mut event: Box<QueuedEvent>, function: Arc<Function>) -> Self {
        Self {
            function,
            request_id: event.request_id.clone(),
            invocation: event.invocation.clone(),
            parent: event.parent.clone(),
            stage: event.stage.clone(),
            client_context: event.client_context.clone(),
            invoked_arn: None,
            payload: event.payload.take(),
            payload_bytes: event.payload_bytes,
            head: None,
            passage: None,
            attempt: event.attempt + 1,
            accepted: event.accepted.take().unwrap_or_else(Moment::now),
            undelivered: 0,
            source: Source::Event(event),
        }
    }

    /// The request as an instance of `function`, as that was when it started, gets it.
    pub(super) fn work(&self, id: RequestId, function: &Function) -> Work {
        let stored = match &self.source {
            Source::Event(event) if self.payload.is_none() => Some(event.id),
            _ => None,
        };
        let request = Request {
            request_id: self.request_id.to_string(),
            invocation: self.invocation.to_string(),
            payload: self.payload.clone().unwrap_or_default(),
            head: self.head.clone(),
            passage: self.passage.clone(),
            directions: HeaderMap::new(),
            timeout: function.timeout(),
            client_context: self.client_context.as_deref().map(str::to_owned),
            invoked_arn: self.invoked_arn.as_deref().map(str::to_owned),
            order: None,
        };
        Work { id, request, stored }
    }

    /// Counts an assignment in vain; false once it has been tried as often as it may.
    pub(super) fn may_be_assigned_again(&mut self) -> bool {
        self.undelivered += 1;
        self.undelivered < MAX_UNDELIVERED
    }
}
