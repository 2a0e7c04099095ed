//! The connections of a run, by slot.

use std::io;

use bytes::Bytes;

use crate::http1::ResponseReader;
use crate::http2::Session;
use crate::net::Transport;
use crate::request::Rendered;

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// To the address of its endpoint with this index.
    Connecting {
        address: usize,
    },
    /// Of TLS.
    Handshaking {
        address: usize,
    },
    Open,
}

/// What is spoken on a connection, and the requests that are on it.
pub(super) enum Protocol {
    Http1(Box<Http1>),
    Http2(Box<Session>),
}

/// One request after another.
pub(super) struct Http1 {
    /// The request under way.
    pub exchange: Option<u32>,
    pub reader: ResponseReader,
    pub unsent: Unsent,
    /// Whether anything of the request was written.
    pub wrote: bool,
}

impl Http1 {
    pub(super) fn new() -> Self {
        Self {
            exchange: None,
            reader: ResponseReader::new(),
            unsent: Unsent::default(),
            wrote: false,
        }
    }
}

/// What of a request the socket has not taken yet.
#[derive(Default)]
pub(super) struct Unsent {
    bytes: Vec<u8>,
    at: usize,
    /// The rest of a large body, which is not copied.
    body: Bytes,
    body_at: usize,
}

impl Unsent {
    /// Everything of the request after `written` bytes is still to be sent.
    pub(super) fn keep(&mut self, rendered: &Rendered, written: usize) {
        self.clear();
        let head = rendered.head();
        self.bytes.extend_from_slice(head.get(written..).unwrap_or_default());
        self.body = rendered.shared_body();
        self.body_at = written.saturating_sub(head.len());
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.at = 0;
        self.body = Bytes::new();
        self.body_at = 0;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.bytes.len() && self.body_at == self.body.len()
    }

    /// Sends on; false when the socket would block.
    pub(super) fn send(&mut self, transport: &mut Transport) -> io::Result<bool> {
        Ok(write_all(transport, &self.bytes, &mut self.at)?
            && write_all(transport, &self.body, &mut self.body_at)?)
    }
}

/// Writes from `at` on, which it moves; false when the socket would block.
pub(super) fn write_all(
    transport: &mut Transport,
    bytes: &[u8],
    at: &mut usize,
) -> io::Result<bool> {
    while *at < bytes.len() {
        match transport.write(&bytes[*at..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(size) => *at += size,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// A connection.
pub(super) struct Connection {
    pub transport: Transport,
    /// Index of the endpoint.
    pub endpoint: usize,
    pub phase: Phase,
    pub protocol: Protocol,
    /// Requests that wait for the connection to stand.
    pub waiting: Vec<u32>,
    /// Whether it has carried a request.
    pub used: bool,
    /// Its place among the idle connections of its endpoint, while it is one.
    pub idle_at: Option<usize>,
}

impl Connection {
    /// Whether no request is on it or waits for it.
    pub(super) fn is_free(&self) -> bool {
        self.waiting.is_empty()
            && match &self.protocol {
                Protocol::Http1(http) => http.exchange.is_none(),
                Protocol::Http2(session) => session.open_streams() == 0,
            }
    }
}

struct Slot {
    /// Counts the connections that the slot has had, so that an event of an earlier one is not
    /// taken for one of the present.
    generation: u32,
    connection: Option<Connection>,
}

/// Connections in slots that are used again.
#[derive(Default)]
pub(super) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
}

impl Connections {
    /// The token under which a slot's present connection is known to the poller.
    pub(super) fn token(&self, slot: u32) -> u64 {
        u64::from(self.slots[slot as usize].generation) << 32 | u64::from(slot)
    }

    /// The slot that an event belongs to, unless its connection is gone.
    pub(super) fn slot_of(&self, token: u64) -> Option<u32> {
        let slot = (token & u64::from(u32::MAX)) as u32;
        let found = self.slots.get(slot as usize)?;
        (found.connection.is_some() && self.token(slot) == token).then_some(slot)
    }

    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        self.open += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            // Descriptors run out long before 32 bits do.
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].connection = Some(connection);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Connection {
        let found = &mut self.slots[slot as usize];
        found.generation = found.generation.wrapping_add(1);
        self.free.push(slot);
        self.open -= 1;
        found.connection.take().expect("only a slot in use is emptied")
    }

    pub(super) fn get(&mut self, slot: u32) -> &mut Connection {
        self.slots[slot as usize].connection.as_mut().expect("the slot is in use")
    }

    /// Connections that exist, in whatever phase.
    pub(super) fn open(&self) -> usize {
        self.open
    }
}
