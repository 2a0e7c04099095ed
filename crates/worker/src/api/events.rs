//! Asynchronous invocations: accepted once they are in the log, then run, and tried again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use uncia_policy::Rejection;

use super::Api;
use super::error::ApiError;
use super::invoke::Names;
use crate::clock;
use crate::dispatch::{Answered, EventAttempt, Submission};
use crate::function::Function;
use crate::instance::{Outcome, StartError};
use crate::meterlog::{AcceptedEvent, WaitingEvent};

/// Lambda tries an event that failed twice more.
const MAX_ATTEMPTS: i64 = 3;
/// Between two tries when the platform had no room.
const BUSY_WAIT: Duration = Duration::from_millis(100);

/// Counts the events that are accepted and not done.
#[derive(Default)]
pub struct Events {
    waiting: AtomicUsize,
}

impl Events {
    /// Accepts an event: it is in the log when this returns.
    pub async fn accept(
        &self,
        api: &Arc<Api>,
        function: &Arc<Function>,
        names: Names,
        payload: Bytes,
        client_context: Option<String>,
    ) -> Result<(), ApiError> {
        if self.waiting.fetch_add(1, Ordering::SeqCst) >= api.config.event_queue {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Err(ApiError::throttled("As many events wait as the platform takes"));
        }
        let mut event = AcceptedEvent {
            id: 0,
            function: function.name.to_string(),
            request_id: names.request_id,
            invocation: names.invocation,
            attempt: 0,
            failures: 0,
            payload,
            client_context,
            accepted: clock::unix_ns(),
        };
        match api.log.accept(event.clone()).await {
            Ok(id) => event.id = id,
            Err(error) => {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
                return Err(ApiError::service(format!("The event was not accepted: {error}")));
            }
        }
        let api = api.clone();
        tokio::spawn(async move { api.events.clone().run(&api, event).await });
        Ok(())
    }

    /// Goes on with the events that an earlier worker had accepted.
    pub fn resume(self: &Arc<Self>, api: &Arc<Api>, left: Vec<WaitingEvent>) {
        for event in left {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let (events, api) = (self.clone(), api.clone());
            tokio::spawn(async move {
                let (log, id) = (api.log.clone(), event.id);
                let payload = tokio::task::spawn_blocking(move || log.payload(id)).await;
                if let Ok(Ok(Some(payload))) = payload {
                    let event = AcceptedEvent {
                        id,
                        function: event.function,
                        request_id: event.request_id,
                        invocation: event.invocation,
                        attempt: event.attempt,
                        failures: event.failures,
                        payload,
                        client_context: event.client_context,
                        accepted: event.accepted,
                    };
                    events.run(&api, event).await;
                }
            });
        }
    }

    async fn run(&self, api: &Arc<Api>, event: AcceptedEvent) {
        let (mut attempt, mut failures) = (event.attempt, event.failures);
        while let Some(function) = api.registry.get(&event.function) {
            attempt += 1;
            let last = failures + 1 >= MAX_ATTEMPTS;
            let submission = Submission {
                function,
                request_id: event.request_id.clone(),
                invocation: event.invocation.clone(),
                attempt,
                parent: None,
                payload: event.payload.clone(),
                client_context: event.client_context.clone(),
                event: Some(EventAttempt { id: event.id, failures, last }),
            };
            match api.dispatcher.submit(submission).await.result {
                Answered::Ran(Outcome::Ok(_)) => break,
                // Shutting down: the next start goes on with it.
                Answered::Rejected(Rejection::ShuttingDown) => return,
                // Not the function's doing, and it has not run: it keeps its place.
                Answered::Rejected(_) | Answered::NotReady(StartError::Sandbox(_)) => {
                    tokio::time::sleep(BUSY_WAIT).await;
                }
                _ if last => break,
                _ => {
                    failures += 1;
                    let wait = api.config.event_retry_ms.saturating_mul(failures.unsigned_abs());
                    tokio::time::sleep(Duration::from_millis(wait)).await;
                }
            }
        }
        api.log.drop_event(event.id);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
