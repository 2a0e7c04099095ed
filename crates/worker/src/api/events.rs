//! Asynchronous invocations: accepted once they are in the log, and run when there is room.

use std::sync::Arc;

use bytes::Bytes;
use uncia_clock::unix_ns;

use super::Api;
use super::error::ApiError;
use super::invoke::Names;
use crate::function::Function;
use crate::meterlog::{AcceptedEvent, LogError, Passed};

/// Accepts an event: it is in the log when this returns, with the change that it came from, if it did.
pub(super) async fn accept(
    api: &Arc<Api>,
    function: &Arc<Function>,
    names: Names,
    payload: Bytes,
    client_context: Option<String>,
    change: Option<Passed>,
) -> Result<(), ApiError> {
    let slot = api
        .dispatcher
        .reserve_event(&function.name)
        .map_err(|_| ApiError::throttled("As many events wait as the platform takes"))?;
    names.note(api);
    let mut event = AcceptedEvent {
        id: 0,
        function: function.qualified_name.to_string(),
        function_key: function.configuration.key.clone(),
        request_id: names.request_id,
        invocation: names.invocation,
        parent: names.parent,
        stage: names.stage,
        attempt: 0,
        failures: 0,
        payload,
        client_context,
        accepted: unix_ns(),
    };
    // In a task of its own: where the client goes away meanwhile, the event may be in the log already.
    let (log, dispatcher) = (api.log.clone(), api.dispatcher.clone());
    let accepted = tokio::spawn(async move {
        event.id = log.accept(event.clone(), change).await?;
        dispatcher.run_event(event, slot);
        Ok::<_, LogError>(())
    });
    let refused =
        |reason: String| ApiError::service(format!("The event was not accepted: {reason}"));
    accepted
        .await
        .map_err(|error| refused(error.to_string()))?
        .map_err(|error| refused(error.to_string()))?;
    Ok(())
}
