//! Asynchronous invocations: accepted once they are in the log, and run when there is room.

use std::sync::Arc;

use bytes::Bytes;
use uncia_clock::unix_ns;

use super::Api;
use super::error::ApiError;
use super::invoke::Names;
use crate::function::Function;
use crate::meterlog::AcceptedEvent;

/// Accepts an event: it is in the log when this returns.
pub async fn accept(
    api: &Arc<Api>,
    function: &Arc<Function>,
    names: Names,
    payload: Bytes,
    client_context: Option<String>,
) -> Result<(), ApiError> {
    let slot = api
        .dispatcher
        .reserve_event()
        .map_err(|_| ApiError::throttled("As many events wait as the platform takes"))?;
    let mut event = AcceptedEvent {
        id: 0,
        function: function.name.to_string(),
        request_id: names.request_id,
        invocation: names.invocation,
        attempt: 0,
        failures: 0,
        payload,
        client_context,
        accepted: unix_ns(),
    };
    event.id = api
        .log
        .accept(event.clone())
        .await
        .map_err(|error| ApiError::service(format!("The event was not accepted: {error}")))?;
    api.dispatcher.run_event(event, slot);
    Ok(())
}
