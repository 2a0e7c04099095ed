//! Passing an answer on piece by piece, and the bytes of a websocket both ways.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, split};
use tokio::time::timeout;

use crate::passage::{ClientGone, Passage};
use crate::sandbox::live::Inner;
use crate::sandbox::pace::READ;

/// Smaller pieces are charged to the instance, for each costs the platform as much as a large one.
const SMALL_PIECE: usize = 8 * 1024;

/// Bytes of a websocket that are under way in one direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// After a client has closed a websocket, the server may take this long to do so too.
const CLOSING: Duration = Duration::from_secs(5);

/// Who ended what was being passed.
pub(super) enum Broken {
    ByClient,
    /// How, in words.
    ByServer(String),
}

impl From<ClientGone> for Broken {
    fn from(_: ClientGone) -> Self {
        Self::ByClient
    }
}

impl Broken {
    /// A body that ends before its end, if the error says so; another is no HTTP.
    pub(super) fn of(error: &hyper::Error) -> Option<Self> {
        // What hyper calls a body that is cut off has no name of its own.
        let mut cause = error.source();
        while let Some(it) = cause {
            if let Some(io) = it.downcast_ref::<std::io::Error>() {
                use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
                let is_cut = matches!(io.kind(), UnexpectedEof | ConnectionReset | BrokenPipe);
                return is_cut.then(|| Self::ByServer(io.to_string()));
            }
            cause = it.source();
        }
        let is_cut = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
        is_cut.then(|| Self::ByServer(error.to_string()))
    }
}

/// Passes an answer's body on to the client. Trailers, which are of one connection, do not pass: they are
/// returned.
pub(super) async fn answer(
    inner: &Inner,
    passage: &Passage,
    status: StatusCode,
    headers: HeaderMap,
    mut body: Incoming,
) -> Result<HeaderMap, Broken> {
    let mut trailers = HeaderMap::new();
    let announced = body.size_hint().exact();
    let pieces = passage.begin(status, headers, announced)?;
    loop {
        let frame = tokio::select! {
            // The end first: a client that has all that was announced takes no more.
            biased;
            frame = body.frame() => frame,
            () = pieces.closed() => return Err(Broken::ByClient),
        };
        let Some(frame) = frame else { return Ok(trailers) };
        let frame = frame.map_err(|error| {
            Broken::of(&error)
                .unwrap_or_else(|| Broken::ByServer(format!("no valid HTTP: {error}")))
        })?;
        let piece = match frame.into_data() {
            Ok(piece) => piece,
            Err(frame) => {
                trailers = frame.into_trailers().unwrap_or_default();
                continue;
            }
        };
        let bytes = piece.len();
        pieces.send(piece).await.map_err(|_| Broken::ByClient)?;
        passage.count_sent(bytes);
        charge(inner, bytes).await;
    }
}

/// Passes bytes both ways until the server closes the connection, or for a while after the client has.
pub(super) async fn websocket(
    inner: &Inner,
    passage: &Arc<Passage>,
    response: &mut http::Response<Incoming>,
) -> Result<(), Broken> {
    let mut headers = super::headers::of_answer(response.headers(), true);
    super::headers::switch(&mut headers);
    drop(passage.begin(StatusCode::SWITCHING_PROTOCOLS, headers, None)?);
    let server = hyper::upgrade::on(response).await;
    let server = server.map_err(|error| Broken::ByServer(error.to_string()))?;
    let mut client = passage.websocket().await?;
    let Some(client) = client.as_mut() else { return Err(Broken::ByClient) };
    let (mut from_server, mut to_server) = split(TokioIo::new(server));
    let (mut from_client, mut to_client) = split(client);
    let outward = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let bytes = match from_server.read(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(bytes) => bytes,
            };
            if to_client.write_all(&buffer[..bytes]).await.is_err() {
                return;
            }
            passage.count_sent(bytes);
            charge(inner, bytes).await;
        }
    };
    let inward = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Ok(bytes @ 1..) = from_client.read(&mut buffer).await {
            passage.count_received(bytes);
            if to_server.write_all(&buffer[..bytes]).await.is_err() {
                break;
            }
        }
        let _ = to_server.shutdown().await;
    };
    tokio::pin!(outward);
    tokio::select! {
        () = &mut outward => {}
        () = inward => drop(timeout(CLOSING, outward).await),
    }
    Ok(())
}

async fn charge(inner: &Inner, bytes: usize) {
    if bytes < SMALL_PIECE {
        inner.api.pace().spend(READ).await;
    }
}
