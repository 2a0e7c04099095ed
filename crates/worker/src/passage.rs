//! What passes between a client and an instance piece by piece, while the request is served: bounded in
//! memory, since whoever is faster waits for the other.
//!
//! The answer's last piece, or the end of a body of unknown length, goes to the client only when the
//! request's row is in the log: see [`crate::api`].

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex as AsyncMutex, MutexGuard as AsyncMutexGuard, mpsc, oneshot};

/// Pieces of an answer between an instance and its client, of some 64 KiB at most each.
const PIECES: usize = 4;

/// The beginning of an answer whose body follows piece by piece.
#[derive(Debug)]
pub(crate) struct Begun {
    /// 101 if the connection becomes a websocket.
    pub status: StatusCode,
    /// All headers that are not of the instance's connection.
    pub headers: HeaderMap,
    /// The body's size, if the instance has announced it.
    pub announced: Option<u64>,
    /// The body, until the instance ends it or breaks off.
    pub pieces: mpsc::Receiver<Bytes>,
    /// Whether some of the body was thrown away, since the client took it too slowly.
    pub is_cut: Arc<AtomicBool>,
}

/// The client has closed its connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientGone;

/// A connection, whatever it consists of.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What becomes the client's side of a websocket.
enum Upgrade {
    /// Once the client has its 101.
    Of(OnUpgrade),
    /// It is there: a controller speaks for the client.
    Piped(Box<dyn Stream>),
}

/// What a client brings that is not there as a whole, and what it takes piece by piece.
#[derive(Default)]
pub struct Passage {
    answer: Mutex<Option<oneshot::Sender<Begun>>>,
    body: Mutex<Option<Incoming>>,
    has_body: bool,
    upgrade: Mutex<Option<Upgrade>>,
    is_websocket: bool,
    /// The client's side of a websocket. It is closed with the last reference to this, which the dispatcher
    /// drops after the row is in the log.
    websocket: AsyncMutex<Option<Box<dyn Stream>>>,
    /// Counts as the client's connection for as long as there may be a websocket.
    _connection: Option<mpsc::Sender<()>>,
    has_begun: AtomicBool,
    is_broken: AtomicBool,
    is_cut: Arc<AtomicBool>,
    received: AtomicU64,
    sent: AtomicU64,
}

impl fmt::Debug for Passage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Passage")
            .field("has_body", &self.has_body)
            .field("is_websocket", &self.is_websocket)
            .finish_non_exhaustive()
    }
}

impl Passage {
    /// A passage for an answer, whose beginning the receiver gets unless the answer comes as a whole.
    pub(crate) fn new() -> (Self, oneshot::Receiver<Begun>) {
        let (sender, begun) = oneshot::channel();
        (Self { answer: Mutex::new(Some(sender)), ..Self::default() }, begun)
    }

    /// With a request's body that was not read.
    pub(crate) fn with_body(self, body: Incoming) -> Self {
        Self { body: Mutex::new(Some(body)), has_body: true, ..self }
    }

    /// With what is to become a websocket. `connection` is dropped when there is none any more.
    pub(crate) fn with_upgrade(self, upgrade: OnUpgrade, connection: mpsc::Sender<()>) -> Self {
        Self {
            upgrade: Mutex::new(Some(Upgrade::Of(upgrade))),
            is_websocket: true,
            _connection: Some(connection),
            ..self
        }
    }

    /// With the client's side of what is to become a websocket.
    pub(crate) fn with_pipe(self, pipe: impl Stream + 'static) -> Self {
        let upgrade = Mutex::new(Some(Upgrade::Piped(Box::new(pipe))));
        Self { upgrade, is_websocket: true, ..self }
    }

    /// Whether the request's body is read from the client while it is sent.
    pub(crate) fn has_body(&self) -> bool {
        self.has_body
    }

    /// Whether the client wants a websocket.
    pub(crate) fn is_websocket(&self) -> bool {
        self.is_websocket
    }

    /// Whether the client has been given the beginning of an answer.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Whether the request's body broke off.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Bytes of the request's body, or of a websocket, that came from the client.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Bytes of the answer's body, or of a websocket, that were given to the client's connection.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn count_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What comes of the answer is thrown away from now on: its client takes it too slowly, and is to know
    /// that it has not all of it.
    pub(crate) fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
    }

    /// The request's body; only once.
    pub(crate) fn take_body(self: &Arc<Self>) -> Option<OutgoingBody> {
        let body = self.body.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(OutgoingBody::Passing { body, passage: self.clone() })
    }

    /// Gives the client the beginning of the answer; the body is to follow on what this returns.
    pub(crate) fn begin(
        &self,
        status: StatusCode,
        headers: HeaderMap,
        announced: Option<u64>,
    ) -> Result<mpsc::Sender<Bytes>, ClientGone> {
        let sender = self.answer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (piece, pieces) = mpsc::channel(PIECES);
        let begun = Begun { status, headers, announced, pieces, is_cut: self.is_cut.clone() };
        sender.ok_or(ClientGone)?.send(begun).map_err(|_| ClientGone)?;
        self.has_begun.store(true, Ordering::Relaxed);
        Ok(piece)
    }

    /// Waits until the client has its 101; returns its side of the websocket, which stays open as long
    /// as this passage.
    pub(crate) async fn websocket(
        &self,
    ) -> Result<AsyncMutexGuard<'_, Option<Box<dyn Stream>>>, ClientGone> {
        let upgrade = self.upgrade.lock().unwrap_or_else(PoisonError::into_inner).take();
        let stream: Box<dyn Stream> = match upgrade.ok_or(ClientGone)? {
            Upgrade::Of(upgrade) => Box::new(TokioIo::new(upgrade.await.map_err(|_| ClientGone)?)),
            Upgrade::Piped(pipe) => pipe,
        };
        let mut websocket = self.websocket.lock().await;
        *websocket = Some(stream);
        Ok(websocket)
    }
}

/// The body of a request to an instance.
#[derive(Debug)]
pub(crate) enum OutgoingBody {
    Whole(Full<Bytes>),
    /// It comes from the client while it is sent.
    Passing {
        body: Incoming,
        passage: Arc<Passage>,
    },
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(context)
                .map(|frame| frame.map(|frame| frame.map_err(|never| match never {}))),
            Self::Passing { body, passage } => loop {
                return match std::task::ready!(Pin::new(&mut *body).poll_frame(context)) {
                    // Trailers are of the client's connection.
                    Some(Ok(frame)) if frame.is_trailers() => continue,
                    Some(Ok(frame)) => {
                        passage.count_received(frame.data_ref().map_or(0, Bytes::len));
                        Poll::Ready(Some(Ok(frame)))
                    }
                    Some(Err(error)) => {
                        passage.is_broken.store(true, Ordering::Relaxed);
                        Poll::Ready(Some(Err(error)))
                    }
                    None => Poll::Ready(None),
                };
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Passing { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Passing { body, .. } => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_begins_once_and_only_if_somebody_waits() {
        let (passage, begun) = Passage::new();
        let pieces = passage.begin(StatusCode::OK, HeaderMap::new(), Some(1)).unwrap();
        assert!(passage.has_begun());
        assert!(passage.begin(StatusCode::OK, HeaderMap::new(), None).is_err());
        pieces.send(Bytes::from_static(b"x")).await.unwrap();
        let mut begun = begun.await.unwrap();
        assert_eq!((begun.status, begun.announced), (StatusCode::OK, Some(1)));
        assert_eq!(begun.pieces.recv().await.unwrap(), "x");
        drop(begun);
        assert!(pieces.is_closed());

        let (passage, begun) = Passage::new();
        drop(begun);
        assert!(passage.begin(StatusCode::OK, HeaderMap::new(), None).is_err());
        assert!(!passage.has_begun());
    }
}
