//! Sending batches to a subscriber's listener.

use std::io;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST};
use http::{Method, Request};
use http_body_util::Full;
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::queue::{Mode, Queue};
use crate::sandbox::live::Inner;

/// What an attempt may take, in which its instance is not frozen.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);
/// After so many a batch is dropped, and the pauses between. One that was not answered in time is waited for in the
/// next, and not sent again: a listener that is slow has it already, and would count it twice.
const ATTEMPTS: u32 = 3;
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// Between two batches, whatever is printed: what telemetry costs the worker is bounded by it.
const PAUSE: Duration = Duration::from_millis(25);
/// The longest head of an answer; its body is not read.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Sends what is in the queue until the subscription or the instance is over.
pub(super) async fn deliver(queue: Arc<Queue>, instance: Weak<Inner>) {
    while let Some(batch) = queue.batch().await {
        if !send(&queue, &instance, &batch.body).await {
            queue.lose(&batch);
        }
        if queue.mode() == Mode::Runs {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Sends a batch, several times if need be; whether the listener has received it.
async fn send(queue: &Queue, instance: &Weak<Inner>, batch: &Bytes) -> bool {
    let mut attempts = 0;
    loop {
        let Some(inner) = instance.upgrade() else { return false };
        let mut post = pin!(post(queue, &inner, batch));
        let sent = loop {
            match timeout(ATTEMPT_TIMEOUT, &mut post).await {
                // A frozen listener is not slow.
                Err(_) if queue.mode() == Mode::Paused => queue.resumed().await,
                Err(_) if attempts + 1 < ATTEMPTS && queue.mode() != Mode::Over => attempts += 1,
                sent => break sent,
            }
        };
        match sent {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => tracing::debug!(extension = queue.name, "telemetry: {error}"),
            Err(_) => tracing::debug!(extension = queue.name, "telemetry: no answer in time"),
        }
        attempts += 1;
        if attempts == ATTEMPTS || queue.mode() == Mode::Over {
            return false;
        }
        tokio::time::sleep(RETRY_AFTER * attempts).await;
        queue.resumed().await;
    }
}

/// Sends a batch on a connection of its own, so that none is open to a listener that is frozen.
async fn post(queue: &Queue, inner: &Inner, batch: &Bytes) -> io::Result<()> {
    let subscription = &queue.subscription;
    let stream = inner.connector.connect(inner, subscription.port).await?;
    let (mut sender, connection) = Builder::new()
        .max_buf_size(MAX_HEAD_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let request = Request::builder()
        .method(Method::POST)
        .uri(&*subscription.path)
        .header(HOST, &*subscription.host)
        .header(CONTENT_TYPE, "application/json")
        .header(CONNECTION, "close")
        .body(Full::new(batch.clone()))
        .map_err(io::Error::other)?;
    let mut answer = pin!(sender.send_request(request));
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // It may have ended with the answer, which is there then.
        _ = connection => answer.await,
    };
    let answer = answer.map_err(io::Error::other)?;
    if answer.status().is_success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("the listener answered {}", answer.status())))
    }
}
