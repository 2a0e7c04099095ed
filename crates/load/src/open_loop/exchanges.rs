//! The requests that are under way.

use slab::Slab;

use crate::rows::Completion;

/// A request and where it is.
#[derive(Debug)]
pub(super) struct Exchange {
    /// The request, as far as it has come.
    pub completion: Completion,
    /// The slot of its connection, or of the one that it waits for.
    pub connection: Option<u32>,
    /// The client of a closed loop that waits for the answer.
    pub client: Option<u32>,
}

/// Requests by key.
pub(super) type Exchanges = Slab<Exchange>;

/// A slab's key as the other tables have it: descriptors run out long before 32 bits do.
pub(super) fn key_of(index: usize) -> u32 {
    index as u32
}
