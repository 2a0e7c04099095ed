//! The bytes of a websocket between a client of the controller and an instance on a worker: those of the client
//! are the pieces of the request, those of the server the pieces of its answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, ReadHalf, duplex,
    split,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::frames::{Beginning, Frames};
use super::members::{AskError, Member};
use super::wire::{ServeAnswer, TakenRequest};
use crate::passage::{Begun, Passage};

/// Bytes that are read of one side at a time.
const BUFFER_BYTES: usize = 16 * 1024;
/// What a client may have sent that the instance has not taken: it waits in the worker, so that none of it waits on the
/// connection, where it would hold up all other requests.
const AHEAD_BYTES: usize = 256 * 1024;
/// Pieces of the client's that wait for the connection to the worker.
pub(super) const PIECES: usize = 4;

/// How many bytes the instances of a worker have taken of each websocket, by the request's id.
#[derive(Default)]
pub(super) struct Websockets(Mutex<HashMap<String, watch::Receiver<u64>>>);

/// The worker's end: what comes from the instance, and is to go to the client.
pub(super) struct Websocket {
    from_instance: ReadHalf<DuplexStream>,
    /// Whether the client has gone, rather than ended what it sends.
    gone: oneshot::Receiver<()>,
}

impl Websockets {
    /// The worker's end, and the instance's, to which the client's bytes go: the rest of the request's frames.
    pub(super) fn open(
        self: &Arc<Self>,
        request_id: &str,
        mut frames: Frames,
    ) -> (Websocket, InstanceEnd) {
        let (here, there) = duplex(AHEAD_BYTES);
        let (from_instance, mut to_instance) = split(here);
        let (taken, counted) = watch::channel(0);
        self.lock().insert(request_id.to_owned(), counted);
        let (websockets, request_id) = (self.clone(), request_id.to_owned());
        let (is_gone, gone) = oneshot::channel();
        tokio::spawn(async move {
            // All of them are read, even if the instance takes none: the controller ends them when it has the answer.
            let mut takes = true;
            let is_whole = loop {
                match frames.next().await {
                    Ok(piece) if piece.is_empty() => break true,
                    Ok(piece) => takes = takes && to_instance.write_all(&piece).await.is_ok(),
                    Err(_) => break false,
                }
            };
            websockets.lock().remove(&request_id);
            if is_whole {
                let _ = to_instance.shutdown().await;
            } else {
                // What the server still sends, nobody takes: it is not waited for.
                let _ = is_gone.send(());
            }
        });
        (Websocket { from_instance, gone }, InstanceEnd { stream: there, taken })
    }

    /// How many bytes the instance has taken, once those are more than `known`; of a websocket that takes none any
    /// more, the largest number.
    pub(super) async fn taken(&self, request_id: &str, known: u64) -> u64 {
        let counted = self.lock().get(request_id).cloned();
        let Some(mut counted) = counted else { return u64::MAX };
        counted.wait_for(|taken| *taken > known).await.map_or(u64::MAX, |taken| *taken)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<u64>>> {
        // The map is whole after every statement, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Websocket {
    /// The same answer, with what the instance sends as its pieces if it has become a websocket.
    pub(super) fn pass(self, begun: Begun) -> Begun {
        if begun.status != StatusCode::SWITCHING_PROTOCOLS {
            return begun;
        }
        let Self { mut from_instance, mut gone } = self;
        let (sender, pieces) = mpsc::channel(PIECES);
        tokio::spawn(async move {
            let pass = async {
                while let Some(piece) = read(&mut from_instance).await
                    && sender.send(piece).await.is_ok()
                {}
            };
            tokio::select! {
                () = pass => {}
                () = sender.closed() => {}
                Ok(()) = &mut gone => {}
            }
        });
        Begun { pieces, ..begun }
    }
}

/// The instance's end, which counts what is read of it.
pub(super) struct InstanceEnd {
    stream: DuplexStream,
    taken: watch::Sender<u64>,
}

impl AsyncRead for InstanceEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let bytes = buffer.filled().len() - before;
        self.taken.send_modify(|taken| *taken += bytes as u64);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for InstanceEnd {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Where a client's bytes go to the worker.
pub(super) struct ToWorker<'a> {
    pub request_id: &'a str,
    pub pieces: mpsc::Sender<Bytes>,
    /// Sent at the end of what the client sends; dropped if it has gone.
    pub whole: oneshot::Sender<()>,
}

impl ToWorker<'_> {
    /// Sends what the client sends to its end, no faster than the instance takes it.
    async fn send_all(
        &self,
        member: &Member,
        passage: &Passage,
        mut client: impl AsyncRead + Unpin,
    ) {
        let (mut sent, mut taken) = (0_u64, 0_u64);
        while let Some(piece) = read(&mut client).await {
            passage.count_received(piece.len());
            sent += piece.len() as u64;
            while sent > taken.saturating_add(AHEAD_BYTES as u64) {
                let request = TakenRequest { request_id: self.request_id.to_owned(), known: taken };
                match member.exchange("/websockets/taken", &request).await {
                    Ok(more) => taken = more,
                    // The answer tells why.
                    Err(_) => return,
                }
            }
            if self.pieces.send(piece).await.is_err() {
                return;
            }
        }
    }
}

/// The controller's end: passes bytes both ways until the instance is done; none if the client never had its
/// websocket. A client that takes nothing until the `deadline` is sent nothing any more.
pub(super) async fn pass(
    member: &Member,
    frames: &mut Frames,
    begun: Beginning,
    passage: &Passage,
    to_worker: ToWorker<'_>,
    deadline: Instant,
) -> Result<Option<ServeAnswer>, AskError> {
    let Ok(pieces) = passage.begin(begun.answer.status, begun.answer.headers, None) else {
        return Ok(None);
    };
    drop(pieces);
    let opened = member.unless_gone(timeout_at(deadline, passage.websocket()));
    let Ok(Ok(mut client)) = opened.await? else { return Ok(None) };
    let Some(client) = client.as_mut() else { return Ok(None) };
    let (mut from_client, mut to_client) = split(client);
    let gone = Notify::new();
    let inward = async {
        let is_whole = tokio::select! {
            () = to_worker.send_all(member, passage, &mut from_client) => true,
            () = gone.notified() => false,
        };
        let ToWorker { pieces, whole, .. } = to_worker;
        if is_whole {
            // Nothing more comes; the instance has a while for what it still sends.
            let _ = whole.send(());
        } else {
            drop(whole);
        }
        drop(pieces);
        std::future::pending::<Infallible>().await
    };
    let outward = async {
        let mut takes = true;
        loop {
            let piece = member.unless_gone(frames.next()).await?.map_err(AskError::Failed)?;
            if piece.is_empty() {
                let answer = member.unless_gone(frames.read()).await?;
                return answer.map(Some).map_err(AskError::Failed);
            }
            if !takes {
                continue;
            }
            let taken = timeout_at(deadline, to_client.write_all(&piece));
            takes = matches!(member.while_behind(taken).await, Some(Ok(Ok(()))));
            if takes {
                passage.count_sent(piece.len());
            } else {
                gone.notify_one();
            }
        }
    };
    tokio::select! {
        answer = outward => answer,
        never = inward => match never {},
    }
}

/// What has come; none at the end, however that came about.
async fn read(from: &mut (impl AsyncReadExt + Unpin)) -> Option<Bytes> {
    let mut piece = BytesMut::with_capacity(BUFFER_BYTES);
    match from.read_buf(&mut piece).await {
        Ok(1..) => Some(piece.freeze()),
        Ok(0) | Err(_) => None,
    }
}
