//! The bodies of requests, and the large ones of answers: bounded in size, in time, and in what all of
//! them occupy.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::error::ApiError;
use super::invoke::MAX_PAYLOAD_BYTES;
use crate::instance::Caller;
use crate::reception::{CLIENTS, FREE_BYTES, FUNCTIONS, Pool, Room, outstayed};

/// Nothing that is taken is larger: a zip of 50 MB in base64, and what is around it. Of what is larger
/// than its operation takes, as much is read and forgotten, so that the client sees the answer.
const MAX_BODY_BYTES: usize = 72 * 1024 * 1024;
/// A body must be there by then.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);
/// Room for a body must be free by then.
const ROOM_TIMEOUT: Duration = Duration::from_secs(15);

/// Reads what a client sends.
pub(super) async fn of_client(body: Incoming, path: &str) -> Result<Bytes, ApiError> {
    let invokes = path.starts_with("/url/")
        || path.ends_with("/invocations")
        || path.ends_with("/response-streaming-invocations");
    let limit = if invokes { MAX_PAYLOAD_BYTES } else { MAX_BODY_BYTES };
    read(body, limit, &CLIENTS, None).await
}

/// Reads what a function sends.
pub(super) async fn of_function(
    body: Incoming,
    caller: Option<&Caller>,
) -> Result<Bytes, ApiError> {
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

/// Ends a connection whose client does not read its answer; an extension of its requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct HangUp(Arc<Notify>);

impl HangUp {
    /// Resolves when the connection is to end.
    pub(super) async fn asked(&self) {
        self.0.notified().await;
    }

    /// Has the connection end.
    pub(crate) fn ask(&self) {
        self.0.notify_one();
    }
}

/// Counts as a client's connection for as long as it lives; an extension of its requests.
#[derive(Debug, Clone)]
pub(super) struct Connected(pub mpsc::Sender<()>);

/// An answer's bytes, which give their room back once they are sent. A client that takes long while
/// others wait for the room loses its connection.
pub(super) fn occupying(room: Option<Room>, head: &Parts, bytes: Vec<u8>) -> Bytes {
    let (Some(room), Some(hang_up)) = (room, head.extensions.get::<HangUp>().cloned()) else {
        return bytes.into();
    };
    let (unsent, mut sent) = oneshot::channel::<()>();
    tokio::spawn(async move {
        tokio::select! {
            _ = &mut sent => return,
            () = outstayed(Some(&room)) => hang_up.ask(),
        }
        // The room is free when the bytes are.
        let _ = sent.await;
    });
    Bytes::from_owner(Unsent { bytes, _unsent: unsent })
}

/// Bytes whose end is noticed.
struct Unsent {
    bytes: Vec<u8>,
    _unsent: oneshot::Sender<()>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static POOL: Pool = Pool::new(1, Duration::from_millis(10));

    fn head(hang_up: &HangUp) -> Parts {
        http::Request::builder().extension(hang_up.clone()).body(()).unwrap().into_parts().0
    }

    #[tokio::test]
    async fn an_answer_that_is_not_read_gives_way_with_its_connection() {
        let hang_up = HangUp::default();
        let unread = occupying(POOL.enter(1 << 20).await, &head(&hang_up), vec![7; 1 << 20]);
        let copy = unread.slice(10..20);
        drop(unread);
        let kept = timeout(Duration::from_millis(50), hang_up.asked()).await;
        assert!(kept.is_err(), "nobody needs the room");
        let second = tokio::spawn(POOL.enter(1 << 20));
        hang_up.asked().await;
        tokio::task::yield_now().await;
        assert!(!second.is_finished(), "the bytes are still there");
        drop(copy);
        let second = second.await.unwrap();
        assert!(second.is_some());
        let read = HangUp::default();
        drop(occupying(second, &head(&read), vec![7; 1 << 20]));
        // An answer that was sent leaves its connection alone.
        assert!(POOL.enter(1 << 20).await.is_some());
        assert!(timeout(Duration::from_millis(50), read.asked()).await.is_err());
    }
}
