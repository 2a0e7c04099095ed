//! A request and as much of its answer as has come.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{RecvStream, SendStream};
use http::Response;

use super::{Answer, SessionError};
use crate::answer::{self, Body};

/// Of a long body, this much is handed over at a time: some frames of the usual size.
const CHUNK_BYTES: usize = 64 << 10;
/// Shorter bodies are handed over whole, whatever the peer's window: `h2` keeps what has no room.
const WHOLE_BYTES: usize = 16 << 10;

/// Dropped before its end, it has the peer told that nobody waits for the answer any more.
#[derive(Debug)]
pub(super) struct Exchange {
    pub key: u32,
    /// The request begins at this byte of the connection's output, or later.
    pub starts_at: u64,
    /// Whether it stands in line for handing over some of its body.
    pub in_line: bool,
    unsent: Bytes,
    outgoing: SendStream<Bytes>,
    incoming: Incoming,
    status: u16,
    expected: Option<u64>,
    head: Vec<u8>,
    body: Body,
}

#[derive(Debug)]
enum Incoming {
    Head(ResponseFuture),
    Body(RecvStream),
}

/// What polling for the answer brought.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub head_arrived: bool,
    /// The end of the answer, good or bad.
    pub end: Option<Result<(), h2::Error>>,
}

/// What came of handing over some of the body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// So many bytes; more are left.
    Some(usize),
    /// What was left, so many bytes.
    Rest(usize),
    /// Nothing: the peer's window is closed. It will be woken.
    Nothing,
}

impl Exchange {
    /// A request whose head was given to `h2`, which has returned these; `body` follows.
    pub(super) fn new(
        key: u32,
        starts_at: u64,
        response: ResponseFuture,
        outgoing: SendStream<Bytes>,
        body: Bytes,
    ) -> Self {
        let mut exchange = Self {
            key,
            starts_at,
            in_line: false,
            unsent: body,
            outgoing,
            incoming: Incoming::Head(response),
            status: 0,
            expected: None,
            head: Vec::new(),
            body: Body::new(),
        };
        if (1..=WHOLE_BYTES).contains(&exchange.unsent.len()) {
            exchange.hand_over_bytes(exchange.unsent.len());
        }
        exchange
    }

    /// Keeps all of the answer's body.
    pub(super) fn keep_whole(&mut self) {
        self.body.keep_whole();
    }

    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Hands over the next part of the body, as far as the peer's window is open.
    pub(super) fn hand_over(&mut self, context: &mut Context<'_>) -> Handed {
        let size = self.unsent.len().min(CHUNK_BYTES);
        self.outgoing.reserve_capacity(size);
        loop {
            let capacity = self.outgoing.capacity();
            if capacity > 0 {
                return self.hand_over_bytes(capacity.min(size));
            }
            match self.outgoing.poll_capacity(context) {
                Poll::Pending => return Handed::Nothing,
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(None | Some(Err(_))) => return self.stop_sending(),
            }
        }
    }

    fn hand_over_bytes(&mut self, size: usize) -> Handed {
        let part = self.unsent.split_to(size);
        if self.outgoing.send_data(part, self.unsent.is_empty()).is_err() {
            return self.stop_sending();
        }
        if self.unsent.is_empty() { Handed::Rest(size) } else { Handed::Some(size) }
    }

    /// The peer wants no more of the request. Why, the receiving side will hear.
    fn stop_sending(&mut self) -> Handed {
        self.unsent.clear();
        Handed::Rest(0)
    }

    /// Takes what has come of the answer.
    pub(super) fn poll_answer(&mut self, context: &mut Context<'_>) -> Progress {
        let mut progress = Progress::default();
        if let Incoming::Head(response) = &mut self.incoming {
            match Pin::new(response).poll(context) {
                Poll::Pending => return progress,
                Poll::Ready(Err(error)) => progress.end = Some(Err(error)),
                Poll::Ready(Ok(response)) => {
                    self.take_head(response);
                    progress.head_arrived = true;
                }
            }
        }
        if let (Incoming::Body(incoming), None) = (&mut self.incoming, &progress.end) {
            progress.end = read(incoming, self.status, &mut self.body, context);
        }
        progress
    }

    fn take_head(&mut self, response: Response<RecvStream>) {
        let (head, body) = response.into_parts();
        self.incoming = Incoming::Body(body);
        self.status = head.status.as_u16();
        let length = head.headers.get(http::header::CONTENT_LENGTH);
        self.expected = length.and_then(|length| length.to_str().ok()?.parse().ok());
        if head.headers.keys().any(|name| answer::is_extension(name.as_str().as_bytes())) {
            self.head.extend_from_slice(format!("HTTP/2 {}\r\n", self.status).as_bytes());
            for (name, value) in &head.headers {
                for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                    self.head.extend_from_slice(piece);
                }
            }
            self.head.extend_from_slice(b"\r\n");
        }
    }

    /// What it means to this exchange that the connection is closed.
    pub(super) fn ended(&self) -> SessionError {
        let received = self.body.bytes();
        match (&self.incoming, self.expected) {
            (Incoming::Head(_), _) => SessionError::NoAnswer,
            (_, Some(expected)) => SessionError::EndedInBody { received, expected },
            (_, None) => SessionError::EndedInStream { received },
        }
    }

    /// The answer as far as it has come; none before its head has.
    pub(super) fn into_answer(mut self) -> Option<Answer> {
        matches!(self.incoming, Incoming::Body(_)).then(|| Answer {
            status: self.status,
            body_bytes: self.body.bytes(),
            head: self.head,
            whole: self.body.take_whole(),
            body: self.body.into_kept(),
        })
    }
}

/// Reads what has come of a body, and the trailers, which say nothing to the generator. Returns the
/// end once it has come.
fn read(
    incoming: &mut RecvStream,
    status: u16,
    body: &mut Body,
    context: &mut Context<'_>,
) -> Option<Result<(), h2::Error>> {
    while !incoming.is_end_stream() {
        match incoming.poll_data(context) {
            Poll::Pending => return None,
            Poll::Ready(Some(Ok(data))) => {
                body.take(status, &data);
                // It fails only when more is released than has come.
                incoming.flow_control().release_capacity(data.len()).ok();
            }
            Poll::Ready(Some(Err(error))) => return Some(Err(error)),
            Poll::Ready(None) => {
                return match incoming.poll_trailers(context) {
                    Poll::Pending => None,
                    Poll::Ready(trailers) => Some(trailers.map(|_| ())),
                };
            }
        }
    }
    Some(Ok(()))
}
