use std::collections::{HashMap, VecDeque};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::client::{Builder, Connection, SendRequest};
use http::Request;

use super::exchange::{Exchange, Handed};
use super::opening::Opening;
use super::pipe::Pipe;
use super::wake::{Flag, Ready, SlotWaker};
use super::{Answer, SessionError, SessionEvent};

/// Bodies are handed over while less than this waits to be written.
const MAX_WAITING_BYTES: usize = 256 << 10;
/// Requests at once before the peer has said how many it takes (RFC 9113, 6.5.2, recommends that
/// it takes no fewer).
const FIRST_STREAMS: usize = 100;
/// So many requests that were given up are remembered for a second: what still comes for them is
/// no error of the peer.
const REMEMBERED_RESETS: usize = 1000;

/// How much the peer may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Bytes of bodies on the connection, and on one stream, before more is granted. It always is,
    /// as soon as they are read: a window is large enough if it covers a round trip.
    pub connection_window: u32,
    pub stream_window: u32,
    /// Bytes of the head of an answer.
    pub head_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connection_window: 16 << 20, stream_window: 4 << 20, head_bytes: 64 << 10 }
    }
}

/// One connection, and the requests on it.
///
/// Whoever owns the socket writes what [`output`](Self::output) returns after every other call,
/// and hands what it reads to [`receive`](Self::receive).
pub(crate) struct Session {
    /// Goes first when the session is dropped: exchanges end with their connection.
    connection: Option<Connection<Pipe, Bytes>>,
    sender: SendRequest<Bytes>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    slot_of: HashMap<u32, u32>,
    /// Slots with a body that is to be handed over.
    line: VecDeque<u32>,
    ready: Ready,
    woken: Vec<u32>,
    /// Raised when the connection has something to do.
    flag: Arc<Flag>,
    waker: Waker,
    pipe: Pipe,
    output: Vec<u8>,
    /// How much of `output`, and of all output, was written.
    written: usize,
    written_ever: u64,
    opening: Opening,
    /// Why the connection is over.
    over: Option<SessionError>,
}

#[derive(Debug)]
struct Slot {
    waker: SlotWaker,
    exchange: Option<Exchange>,
}

impl Session {
    /// A new connection, whose preface and SETTINGS are in the output.
    pub(crate) fn new(limits: Limits) -> Self {
        let mut builder = Builder::new();
        builder
            .initial_connection_window_size(limits.connection_window)
            .initial_window_size(limits.stream_window)
            .max_header_list_size(limits.head_bytes)
            .initial_max_send_streams(FIRST_STREAMS)
            .max_concurrent_reset_streams(REMEMBERED_RESETS)
            .max_local_error_reset_streams(None)
            .enable_push(false);
        // Every read takes all that there is: small frames do not pile up, however many come.
        builder.data_frame_budget(usize::MAX);
        let pipe = Pipe::default();
        let handshake = pin!(builder.handshake(pipe.clone()));
        let shaken = handshake.poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Ok((sender, connection))) = shaken else {
            unreachable!("the pipe makes nobody wait and has no errors");
        };
        let flag = Arc::new(Flag::default());
        flag.raise();
        let mut session = Self {
            connection: Some(connection),
            sender,
            slots: Vec::new(),
            free: Vec::new(),
            slot_of: HashMap::new(),
            line: VecDeque::new(),
            ready: Ready::default(),
            woken: Vec::new(),
            waker: Waker::from(flag.clone()),
            flag,
            pipe,
            output: Vec::new(),
            written: 0,
            written_ever: 0,
            opening: Opening::default(),
            over: None,
        };
        session.advance(&mut Vec::new());
        session
    }

    /// How many more requests may be started now: none once the peer has said that it goes away.
    pub(crate) fn capacity(&mut self) -> usize {
        match self.refusal() {
            Some(_) => 0,
            None => self.free_streams(),
        }
    }

    fn free_streams(&self) -> usize {
        self.sender.current_max_send_streams().saturating_sub(self.open_streams())
    }

    /// Requests under way.
    pub(crate) fn open_streams(&self) -> usize {
        self.slot_of.len()
    }

    /// The keys of the requests under way.
    pub(crate) fn keys(&self) -> impl Iterator<Item = u32> {
        self.slot_of.keys().copied()
    }

    /// Whether nothing more comes: once the output is written, the socket may be closed.
    pub(crate) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// Starts a request. Its URI is absolute. Headers are sent as they are; those that belong to
    /// HTTP/1.1's connections (`Connection`, `Transfer-Encoding` and the like) are an error.
    ///
    /// `key` comes back in events; no other request under way may have it.
    pub(crate) fn send(
        &mut self,
        key: u32,
        request: Request<()>,
        body: Bytes,
    ) -> Result<(), SessionError> {
        assert!(!self.slot_of.contains_key(&key), "key {key} belongs to a request under way");
        if let Some(refusal) = self.refusal() {
            return Err(refusal);
        }
        if self.free_streams() == 0 {
            return Err(SessionError::Full);
        }
        if request.uri().scheme().is_none() || request.uri().authority().is_none() {
            let message = format!("`{}` is not an absolute URI", request.uri());
            return Err(SessionError::InvalidRequest(message));
        }
        let starts_at = self.output_ever();
        // A clone has no memory of a request that still waits within `h2` for one that was given
        // up to leave; the original would refuse to take another.
        let (response, outgoing) = self
            .sender
            .clone()
            .send_request(request, body.is_empty())
            .map_err(|error| SessionError::InvalidRequest(error.to_string()))?;
        let exchange = Exchange::new(key, starts_at, response, outgoing, body);
        let slot = self.insert(exchange);
        self.slot_of.insert(key, slot);
        self.ready_to_read(slot);
        self.stand_in_line(slot);
        self.flag.raise();
        Ok(())
    }

    /// Keeps all of the answer to a request that was just started.
    pub(crate) fn keep_whole(&mut self, key: u32) {
        let slot = self.slot_of.get(&key).and_then(|slot| self.slots.get_mut(*slot as usize));
        if let Some(exchange) = slot.and_then(|slot| slot.exchange.as_mut()) {
            exchange.keep_whole();
        }
    }

    /// Gives a request up; there will be no event for it. Returns what has come of an answer.
    pub(crate) fn cancel(&mut self, key: u32) -> Option<Answer> {
        let slot = *self.slot_of.get(&key)?;
        self.flag.raise();
        self.remove(slot).into_answer()
    }

    /// Takes bytes from the socket. An error is the end of the connection, and `events` have it
    /// for each request that was under way.
    pub(crate) fn receive(
        &mut self,
        input: &[u8],
        events: &mut Vec<SessionEvent>,
    ) -> Result<(), SessionError> {
        let was_over = self.is_over();
        if !was_over {
            match self.opening.feed(input) {
                Ok(bytes) => self.pipe.give(bytes),
                Err(error) => self.fail(error, events),
            }
            self.flag.raise();
            self.advance(events);
        }
        match &self.over {
            // It went away as it had announced.
            None | Some(SessionError::Closed) => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }

    /// The peer has closed the connection.
    pub(crate) fn end(&mut self, events: &mut Vec<SessionEvent>) {
        if let Err(error) = self.opening.end() {
            return self.fail(error, events);
        }
        self.pipe.end();
        self.flag.raise();
        self.advance(events);
        if !self.is_over() {
            self.fail(SessionError::Closed, events);
        }
    }

    /// What is to be written to the socket. After it is written there may be more.
    pub(crate) fn output(&mut self) -> &[u8] {
        if self.written == self.output.len() {
            let mut events = Vec::new();
            self.advance(&mut events);
            debug_assert!(events.is_empty(), "only input makes events: {events:?}");
            self.written = 0;
            self.pipe.take_output(&mut self.output);
        }
        &self.output[self.written..]
    }

    /// So much of the output was written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        self.written_ever += bytes as u64;
        assert!(self.written <= self.output.len(), "more was written than there is");
    }

    /// Why no request can be started any more.
    fn refusal(&mut self) -> Option<SessionError> {
        if let Some(error) = &self.over {
            return Some(error.clone());
        }
        // Nothing was ever sent by this handle itself, so it never waits.
        match self.sender.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(error)) => Some(SessionError::of_connection(&error)),
            Poll::Ready(Ok(())) | Poll::Pending => None,
        }
    }

    /// Bytes that were ever put out.
    fn output_ever(&self) -> u64 {
        self.written_ever + self.waiting() as u64
    }

    fn waiting(&self) -> usize {
        self.output.len() - self.written + self.pipe.output_length()
    }

    fn insert(&mut self, exchange: Exchange) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            // Streams on a connection have 31 bits.
            let slot = self.slots.len() as u32;
            self.slots.push(Slot { waker: self.ready.waker(slot), exchange: None });
            slot
        });
        self.slots[slot as usize].exchange = Some(exchange);
        slot
    }

    fn remove(&mut self, slot: u32) -> Exchange {
        let exchange = self.slots[slot as usize].exchange.take();
        let exchange = exchange.expect("only a slot in use is emptied");
        self.slot_of.remove(&exchange.key);
        self.free.push(slot);
        exchange
    }

    /// Has the slot visited, so that its waker becomes known to `h2`.
    fn ready_to_read(&mut self, slot: u32) {
        self.slots[slot as usize].waker.waker.wake_by_ref();
    }

    fn stand_in_line(&mut self, slot: u32) {
        let Some(exchange) = &mut self.slots[slot as usize].exchange else {
            return;
        };
        if exchange.has_unsent() && !exchange.in_line {
            exchange.in_line = true;
            self.line.push_back(slot);
        }
    }

    /// Does all that can be done now.
    fn advance(&mut self, events: &mut Vec<SessionEvent>) {
        loop {
            self.poll_connection(events);
            let mut woken = std::mem::take(&mut self.woken);
            self.ready.take(&mut woken);
            for slot in woken.drain(..) {
                self.visit(slot, events);
            }
            self.woken = woken;
            self.hand_over_bodies();
            if !self.flag.is_raised() || self.connection.is_none() {
                return;
            }
        }
    }

    fn poll_connection(&mut self, events: &mut Vec<SessionEvent>) {
        while let (Some(connection), true) = (&mut self.connection, self.flag.is_raised()) {
            self.flag.lower();
            let mut context = Context::from_waker(&self.waker);
            if let Poll::Ready(result) = Pin::new(connection).poll(&mut context) {
                let error = match result {
                    Ok(()) => SessionError::Closed,
                    Err(error) => SessionError::of_connection(&error),
                };
                self.fail(error, events);
            }
        }
    }

    /// Sees what a request that was woken has got.
    fn visit(&mut self, slot: u32, events: &mut Vec<SessionEvent>) {
        let Slot { waker, exchange } = &mut self.slots[slot as usize];
        waker.rearm();
        let Some(exchange) = exchange else {
            return;
        };
        let key = exchange.key;
        let progress = exchange.poll_answer(&mut Context::from_waker(&waker.waker));
        if progress.head_arrived {
            events.push(SessionEvent::Head { key });
        }
        match progress.end {
            None => self.stand_in_line(slot),
            Some(Ok(())) => {
                let answer = self.remove(slot).into_answer().unwrap_or_default();
                events.push(SessionEvent::Done { key, answer });
            }
            Some(Err(error)) => {
                let error = SessionError::of_exchange(&error)
                    .unwrap_or_else(|| self.why(SessionError::of_connection(&error)));
                events.push(self.failed(slot, error));
            }
        }
    }

    /// Why the connection is over, if it is known, or else as a request has heard of it.
    fn why(&self, heard: SessionError) -> SessionError {
        self.over.clone().unwrap_or(heard)
    }

    fn failed(&mut self, slot: u32, error: SessionError) -> SessionEvent {
        let exchange = self.remove(slot);
        let key = exchange.key;
        let wrote = self.written_ever > exchange.starts_at && !error.is_unprocessed();
        let error = if error == SessionError::Closed { exchange.ended() } else { error };
        SessionEvent::Failed { key, error, wrote, answer: exchange.into_answer() }
    }

    /// Hands bodies over, each in its turn, while not too much waits to be written.
    fn hand_over_bodies(&mut self) {
        let mut waiting = self.waiting();
        while waiting < MAX_WAITING_BYTES {
            let Some(slot) = self.line.pop_front() else {
                return;
            };
            let Slot { waker, exchange: Some(exchange) } = &mut self.slots[slot as usize] else {
                continue;
            };
            if !std::mem::take(&mut exchange.in_line) {
                continue;
            }
            match exchange.hand_over(&mut Context::from_waker(&waker.waker)) {
                Handed::Some(bytes) => {
                    waiting += bytes;
                    self.stand_in_line(slot);
                }
                Handed::Rest(bytes) => waiting += bytes,
                Handed::Nothing => continue,
            }
            self.flag.raise();
        }
    }

    /// Ends the connection, and with it every request that has no complete answer.
    fn fail(&mut self, error: SessionError, events: &mut Vec<SessionEvent>) {
        self.over.get_or_insert(error);
        self.connection = None;
        for slot in 0..self.slots.len() as u32 {
            self.visit(slot, events);
            if self.slots[slot as usize].exchange.is_some() {
                let error = self.why(SessionError::Closed);
                let event = self.failed(slot, error);
                events.push(event);
            }
        }
    }
}
