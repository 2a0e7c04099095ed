//! The requests that are under way.

use slab::Slab;

use super::chains::{Ended, Later};
use crate::answer::Whole;
use crate::plan::Entry;
use crate::rows::{self, Completion};

/// A request and where it is.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The request, as far as it has come.
    pub completion: Completion,
    /// The slot of its connection, or of the one that it waits for.
    pub connection: Option<u32>,
    /// The client of a closed loop that waits for the answer.
    pub client: Option<u32>,
    /// The chain that goes on from the answer.
    pub task: Option<u32>,
}

impl Exchange {
    /// What its end means to its chain, if it is of one.
    pub(super) fn stage(&self, head: &[u8], body: &[u8], answer: Option<Whole>) -> Option<Ended> {
        let stream = self.completion.entry.stream;
        let is_ok = || rows::is_ok(&self.completion, head, body);
        self.task.map(|task| Ended { task, stream, is_ok: is_ok(), answer })
    }
}

/// A request that is due.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order {
    pub entry: Entry,
    /// When it was to be sent; none of what follows an answer in a chain.
    pub scheduled: Option<i64>,
    pub client: Option<u32>,
    /// Of a later stage: its chain, and the stream whose answer released it.
    pub later: Option<Later>,
}

/// Requests by key.
pub(super) type Exchanges = Slab<Exchange>;

/// A slab's key as the other tables have it: descriptors run out long before 32 bits do.
pub(super) fn key_of(index: usize) -> u32 {
    index as u32
}
