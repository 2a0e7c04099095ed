//! The connections of a run, by slot.

use socket2::Socket;

use crate::http1::ResponseReader;
use crate::rows::Completion;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// To the address of its endpoint with this index.
    Connecting { address: usize },
    /// A request is being sent or its answer awaited.
    Exchange,
    /// Open, with nothing to do.
    Idle,
}

/// A connection and the request on it.
pub struct Connection {
    pub socket: Socket,
    /// Index of the endpoint.
    pub endpoint: usize,
    pub phase: Phase,
    /// The request, as far as it has come. Meaningless while idle.
    pub exchange: Completion,
    /// Bytes of the request that are written, and that there are.
    pub written: usize,
    pub length: usize,
    pub reader: ResponseReader,
    /// Its place among the idle connections of its endpoint, while it is one.
    pub idle_at: usize,
}

impl Connection {
    pub fn is_written(&self) -> bool {
        self.written == self.length
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
pub struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
    open: usize,
}

impl Connections {
    /// The token under which a slot's present connection is known to the poller.
    pub fn token(&self, slot: u32) -> u64 {
        u64::from(self.slots[slot as usize].generation) << 32 | u64::from(slot)
    }

    /// The slot that an event belongs to, unless its connection is gone.
    pub fn slot_of(&self, token: u64) -> Option<u32> {
        let slot = (token & u64::from(u32::MAX)) as u32;
        let found = self.slots.get(slot as usize)?;
        (found.connection.is_some() && self.token(slot) == token).then_some(slot)
    }

    pub fn insert(&mut self, connection: Connection) -> u32 {
        self.open += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            // Descriptors run out long before 32 bits do.
            (self.slots.len() - 1) as u32
        });
        self.slots[slot as usize].connection = Some(connection);
        slot
    }

    pub fn remove(&mut self, slot: u32) -> Connection {
        let found = &mut self.slots[slot as usize];
        found.generation = found.generation.wrapping_add(1);
        self.free.push(slot);
        self.open -= 1;
        found.connection.take().expect("only a slot in use is emptied")
    }

    pub fn get(&mut self, slot: u32) -> &mut Connection {
        self.slots[slot as usize].connection.as_mut().expect("the slot is in use")
    }

    /// Connections that exist, in whatever phase.
    pub fn open(&self) -> usize {
        self.open
    }

    /// Slots with a request under way.
    pub fn busy(&self) -> Vec<u32> {
        let slots = (0..).zip(&self.slots);
        let busy = slots.filter(|(_, slot)| {
            slot.connection.as_ref().is_some_and(|connection| connection.phase != Phase::Idle)
        });
        busy.map(|(slot, _)| slot).collect()
    }
}
