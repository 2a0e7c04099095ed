//! What the owner does with requests and events.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use uncia_clock::Moment;
use uncia_policy::{Event, FunctionId, Rejection, RequestId};

use super::{Owner, Refusal};
use crate::dispatch::events::{AttemptEnd, Delayed, NextAttempt, QueuedEvent};
use crate::dispatch::host::{InstanceHost, Log};
use crate::dispatch::requests::{PendingRequest, Source};
use crate::dispatch::{Completion, Disposition, GivenHint, Submission, row};
use crate::instance::Outcome;
use crate::meterlog::Recorded;

impl<H: InstanceHost, L: Log> Owner<H, L> {
    pub(super) fn submit(&mut self, submission: Submission, answer: oneshot::Sender<Completion>) {
        let Submission {
            function,
            request_id,
            invocation,
            parent,
            stage,
            payload,
            head,
            passage,
            client_context,
            invoked_arn,
            hint,
        } = submission;
        let function_id = function.id;
        let request = PendingRequest {
            function,
            request_id: Arc::from(request_id),
            invocation: Arc::from(invocation),
            parent: parent.map(Arc::from),
            stage: stage.map(Arc::from),
            client_context: client_context.map(Arc::from),
            invoked_arn: invoked_arn.map(Arc::from),
            payload_bytes: payload.len(),
            head,
            passage,
            payload: Some(payload),
            attempt: 1,
            accepted: Moment::now(),
            undelivered: 0,
            source: Source::Client(answer),
        };
        let id = self.arrive(request, false);
        // One that was turned away has invoked nothing.
        if let Some(hint) = hint.filter(|_| self.requests.contains_key(&id)) {
            self.hint(function_id, hint);
        }
    }

    /// Tells the scheduler what a request of the function says of those to come.
    pub(super) fn hint(&mut self, function: FunctionId, given: GivenHint) {
        let mut decisions = std::mem::take(&mut self.decisions);
        let answer = self.scheduler.on_hint(self.now(), function, given.hint, &mut decisions);
        for decision in decisions.drain(..) {
            self.carry_out(decision);
        }
        self.decisions = decisions;
        self.hints.note(answer.is_taken());
        // Whoever asked may have gone away.
        let _ = given.answer.send(answer);
    }

    /// Has an accepted event wait for its turn.
    pub(super) fn enqueue(&mut self, event: QueuedEvent) {
        if self.shutting_down {
            // It is in the log, and the next worker's.
            return;
        }
        let id = self.function_ids.get(&event.function);
        let state = id.and_then(|id| self.functions.get(id));
        let Some(state) = state.filter(|state| state.function.has_key(&event.function_key)) else {
            self.dropped.push(event.id);
            return;
        };
        if state.function.broken.is_some() {
            self.events_of_broken.entry(event.function.clone()).or_default().push(event);
            return;
        }
        let request = PendingRequest::of_event(Box::new(event), state.function.clone());
        self.arrive(request, true);
    }

    fn arrive(&mut self, request: PendingRequest, can_wait: bool) -> RequestId {
        let function = request.function.id;
        let id = RequestId(self.next_request);
        self.next_request += 1;
        if let Some(state) = self.functions.get_mut(&function) {
            state.pending += 1;
        }
        self.requests.insert(id, request);
        self.notify_scheduler(Event::Arrival { request: id, function, can_wait });
        id
    }

    pub(super) fn take_request(&mut self, id: RequestId) -> Option<PendingRequest> {
        let request = self.requests.remove(&id)?;
        if let Some(state) = self.functions.get_mut(&request.function.id) {
            state.pending -= 1;
        }
        self.forget_function(request.function.id);
        Some(request)
    }

    /// Ends a request that did not run.
    pub(super) fn refuse(&mut self, id: RequestId, refusal: &Refusal) {
        let Some(mut request) = self.take_request(id) else { return };
        if let Source::Event(event) = request.source {
            request.source = Source::None;
            self.refuse_event(*event, &request, refusal);
            return;
        }
        // An instance that was killed while it started: that is not its function's failure.
        let stopped = Refusal::Rejected(Rejection::ShuttingDown);
        let refusal = if self.closing { &stopped } else { refusal };
        let (recorded, disposition, log_tail) = match refusal {
            Refusal::Rejected(reason) => {
                (row::rejected(&request, *reason), Disposition::Rejected(*reason), Bytes::new())
            }
            Refusal::NotReady(failed) => {
                let error = failed.start.error.clone();
                let recorded = row::not_ready(&request, &failed.state, &error);
                self.log.output(&recorded.row, &failed.start.log_tail);
                (recorded, Disposition::NotReady(error), failed.start.log_tail.clone())
            }
        };
        self.answer(request.source, recorded, disposition, log_tail);
    }

    fn refuse_event(
        &mut self,
        mut event: QueuedEvent,
        request: &PendingRequest,
        refusal: &Refusal,
    ) {
        match refusal {
            Refusal::Rejected(Rejection::NoFunction) => self.dropped.push(event.id),
            // Accepted when there was more room; there will be none here. To a controller a larger worker
            // may come.
            Refusal::Rejected(reason @ Rejection::TooLarge) => {
                let delay = if self.is_alone { None } else { event.defer_stuck() };
                if let Some(delay) = delay {
                    self.delayed.insert(self.now(), delay, event);
                } else {
                    let recorded = row::rejected(request, *reason);
                    self.end_attempt(event, request.attempt, recorded, &AttemptEnd::Refused);
                }
            }
            // It is in the log, and the next worker's.
            _ if self.shutting_down => {}
            Refusal::NotReady(failed) => {
                let error = &failed.start.error;
                let recorded = row::not_ready(request, &failed.state, error);
                self.log.output(&recorded.row, &failed.start.log_tail);
                let end = AttemptEnd::NotReady(error);
                self.end_attempt(event, request.attempt, recorded, &end);
            }
            Refusal::Rejected(_) => self.defer(event),
        }
    }

    /// Ends a request that ran.
    pub(super) fn end(
        &mut self,
        request: PendingRequest,
        recorded: Recorded,
        outcome: Outcome,
        log_tail: Bytes,
    ) {
        // What it has of the client's connection is closed when the row is in the log.
        let _passage = request.passage;
        match request.source {
            Source::Event(event) => {
                let end = AttemptEnd::Ran(&outcome);
                self.end_attempt(*event, request.attempt, recorded, &end);
            }
            source => self.answer(source, recorded, Disposition::Ran(outcome), log_tail),
        }
    }

    /// Writes a request's row to the log, and then gives the client its answer.
    pub(super) fn answer(
        &self,
        source: Source,
        recorded: Recorded,
        disposition: Disposition,
        log_tail: Bytes,
    ) {
        let Source::Client(answer) = source else { return };
        let recorded = Arc::new(recorded);
        let disposition = match self.log.invocation(recorded.clone()) {
            Ok(()) => disposition,
            Err(error) => Disposition::NotLogged(error),
        };
        // Whoever asked may have gone away.
        let _ = answer.send(Completion { disposition, recorded, log_tail });
    }

    /// Ends an attempt of an event: its row goes to the log, with what that means for the event.
    fn end_attempt(
        &mut self,
        mut event: QueuedEvent,
        attempt: i64,
        mut recorded: Recorded,
        end: &AttemptEnd<'_>,
    ) {
        let (update, next) = event.attempted(attempt, end, self.config.event_retry_ms);
        recorded.event = Some(update);
        row::mark_event(&mut recorded);
        self.record_event(event, Arc::new(recorded), next);
    }

    /// Writes the row of an event's attempt, and then does what follows.
    pub(super) fn record_event(
        &mut self,
        mut event: QueuedEvent,
        recorded: Arc<Recorded>,
        next: NextAttempt,
    ) {
        let now = self.now();
        match (self.log.invocation(recorded.clone()), next) {
            (Ok(()), NextAttempt::None) => {}
            (Ok(()), NextAttempt::AfterMs(delay)) => self.delayed.insert(now, delay, event),
            (Err(error), _) => {
                tracing::warn!(
                    request = &*event.request_id,
                    "the row of an event's attempt cannot be written, and is tried again: {error}"
                );
                let delay = event.defer();
                let delayed = Delayed { event, unwritten: Some((recorded, next)) };
                self.delayed.insert_delayed(now, delay, delayed);
            }
        }
    }

    /// Has an event wait for a while, after what was not its function's fault.
    pub(super) fn defer(&mut self, mut event: QueuedEvent) {
        let delay = event.defer();
        self.delayed.insert(self.now(), delay, event);
    }
}
