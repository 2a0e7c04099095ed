//! The bodies of requests: bounded in size, in time, and in what all of them occupy.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::error::ApiError;
use super::invoke::MAX_PAYLOAD_BYTES;
use crate::instance::Caller;
use crate::reception::{CLIENTS, FREE_BYTES, FUNCTIONS, Pool, outstayed};

/// Nothing that is taken is larger: a zip of 50 MB in base64, and what is around it. Of what is larger
/// than its operation takes, as much is read and forgotten, so that the client sees the answer.
const MAX_BODY_BYTES: usize = 72 * 1024 * 1024;
/// A body must be there by then.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Room for a body must be free by then.
const ROOM_TIMEOUT: Duration = Duration::from_secs(15);

/// Reads what a client sends.
pub async fn of_client(body: Incoming, path: &str) -> Result<Bytes, ApiError> {
    let invokes = path.starts_with("/url/") || path.ends_with("/invocations");
    let limit = if invokes { MAX_PAYLOAD_BYTES } else { MAX_BODY_BYTES };
    read(body, limit, &CLIENTS, None).await
}

/// Reads what a function sends.
pub async fn of_function(body: Incoming, caller: Option<&Caller>) -> Result<Bytes, ApiError> {
    read(body, MAX_PAYLOAD_BYTES, &FUNCTIONS, caller).await
}

async fn read(
    body: Incoming,
    limit: usize,
    pool: &'static Pool,
    caller: Option<&Caller>,
) -> Result<Bytes, ApiError> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    match timeout(BODY_TIMEOUT, receive(body, limit, pool, caller)).await {
        Ok(received) => received,
        Err(_) => Err(ApiError::too_slow(format!(
            "The request's body was not there after {} s",
            BODY_TIMEOUT.as_secs()
        ))),
    }
}

async fn receive(
    mut body: Incoming,
    limit: usize,
    pool: &'static Pool,
    caller: Option<&Caller>,
) -> Result<Bytes, ApiError> {
    let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
    let expected = announced.unwrap_or(limit);
    if expected > MAX_BODY_BYTES {
        return Err(ApiError::too_large(expected, limit));
    }
    // What is too large is not kept.
    let kept_bytes = if expected > limit { 0 } else { expected };
    let room = timeout(ROOM_TIMEOUT, pool.enter(kept_bytes)).await.map_err(|_| {
        ApiError::throttled("As many bodies are being received as the platform has room for")
    })?;
    let mut kept = Vec::new();
    let mut size = 0;
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = outstayed(room.as_ref()) => {
                return Err(ApiError::too_slow("The request's body takes long, and others wait"));
            }
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            ApiError::bad_http(format!("The request's body broke off: {error}"))
        })?;
        if let Some(caller) = caller {
            caller.charge_piece().await;
        }
        let Ok(data) = frame.into_data() else { continue };
        size += data.len();
        if announced == Some(data.len()) && size <= limit {
            return Ok(data);
        }
        if size > MAX_BODY_BYTES {
            break;
        }
        if size > limit {
            kept = Vec::new();
        } else {
            if kept.capacity() == 0 {
                // Pages that nothing was written to yet take no memory.
                kept.reserve_exact(announced.unwrap_or(FREE_BYTES));
            }
            kept.extend_from_slice(&data);
        }
    }
    if size > limit { Err(ApiError::too_large(size, limit)) } else { Ok(kept.into()) }
}
