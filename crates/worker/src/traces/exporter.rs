//! The task that sends spans to a collector.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::{Counts, Finished, Settings, span};

/// Invocations that are sent at once.
const MAX_BATCH: usize = 512;
/// How long the first of a batch waits for others.
const GATHER: Duration = Duration::from_secs(1);
/// Waits before a batch is sent again, where the collector may take it later.
const RETRIES: [Duration; 3] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// When the platform ends, what waits is sent within this time.
pub(super) const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);
/// What is read of a collector's answer.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Between two warnings of the same.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Why a batch was not taken.
struct Refused {
    message: String,
    /// Whether it may be later.
    is_passing: bool,
}

/// Sends what waits, in batches, until told to stop; then sends what is left.
pub(super) async fn run(
    settings: Settings,
    mut waiting: mpsc::Receiver<Finished>,
    counts: Arc<Counts>,
    mut stop: oneshot::Receiver<oneshot::Sender<()>>,
) {
    let mut warned: Option<Instant> = None;
    let mut done = None;
    while done.is_none() {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            stopped = &mut stop => match stopped {
                Ok(sender) => done = Some(sender),
                // Whoever makes spans is gone.
                Err(_) => return,
            },
            first = waiting.recv() => match first {
                Some(first) => batch.push(first),
                None => return,
            },
        }
        if done.is_none() {
            let full = gather(&mut waiting, &mut batch);
            tokio::select! {
                _ = timeout(GATHER, full) => {}
                stopped = &mut stop => match stopped {
                    Ok(sender) => done = Some(sender),
                    Err(_) => return,
                },
            }
        }
        loop {
            while batch.len() < MAX_BATCH
                && let Ok(next) = waiting.try_recv()
            {
                batch.push(next);
            }
            if batch.is_empty() {
                break;
            }
            let sent = batch.len() as u64;
            let result = send_patiently(&settings, &batch, done.is_some()).await;
            batch.clear();
            match result {
                Ok(()) => drop(counts.exported.fetch_add(sent, Ordering::Relaxed)),
                Err(refused) => {
                    let dropped = counts.dropped.fetch_add(sent, Ordering::Relaxed) + sent;
                    if warned.is_none_or(|at| at.elapsed() >= WARNING_INTERVAL) {
                        warned = Some(Instant::now());
                        tracing::warn!(
                            "spans are lost: the collector at {} {}; of {dropped} invocations so far",
                            settings.endpoint,
                            refused.message
                        );
                    }
                }
            }
            if done.is_none() {
                break;
            }
        }
    }
    if let Some(done) = done {
        // Who waited may have given up.
        let _ = done.send(());
    }
}

/// Receives until the batch is full.
async fn gather(waiting: &mut mpsc::Receiver<Finished>, batch: &mut Vec<Finished>) {
    while batch.len() < MAX_BATCH
        && let Some(next) = waiting.recv().await
    {
        batch.push(next);
    }
}

/// Sends a batch, again if the collector may take it later, unless there is no time.
async fn send_patiently(
    settings: &Settings,
    batch: &[Finished],
    is_last: bool,
) -> Result<(), Refused> {
    let body = Bytes::from(span::request(batch, &settings.resource).to_string());
    let mut waits = RETRIES.iter();
    loop {
        let refused = match timeout(settings.timeout, send(settings, body.clone())).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(refused)) => refused,
            Err(_) => Refused {
                message: format!("did not answer within {} ms", settings.timeout.as_millis()),
                is_passing: true,
            },
        };
        match waits.next() {
            Some(wait) if refused.is_passing && !is_last => sleep(*wait).await,
            _ => return Err(refused),
        }
    }
}

async fn send(settings: &Settings, body: Bytes) -> Result<(), Refused> {
    let unreachable = |error: &dyn std::error::Error| Refused {
        message: format!("cannot be reached: {error}"),
        is_passing: true,
    };
    let endpoint = &settings.endpoint;
    let host = endpoint.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = endpoint.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await.map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    // Ends with the sender, whatever becomes of the request.
    tokio::spawn(connection);
    let authority = endpoint.authority().map_or("", |it| it.as_str());
    let target = endpoint.path_and_query().map_or("/", |it| it.as_str());
    let mut request = Request::post(target)
        .header(header::HOST, authority)
        .header(header::CONTENT_TYPE, "application/json");
    for (name, value) in &settings.headers {
        request = request.header(name, value);
    }
    let request = request.body(Full::new(body)).map_err(|error| Refused {
        message: format!("cannot be asked: {error}"),
        is_passing: false,
    })?;
    let answer = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
    let status = answer.status();
    // It says nothing that is needed, but the connection is to end well.
    let _ = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
    if status.is_success() {
        return Ok(());
    }
    // Those that the protocol lets be sent again.
    let is_passing = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    Err(Refused { message: format!("answers with HTTP status {}", status.as_u16()), is_passing })
}
