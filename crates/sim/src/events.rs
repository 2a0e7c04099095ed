//! What is due, in order of time, and at the same time in the order in which it was planned.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use uncia_policy::{InstanceId, Nanos};

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// An instance that was started is ready.
    Ready(InstanceId),
    /// A phase on the worker ends, unless what runs there has changed since.
    Phase {
        /// Which worker.
        worker: u32,
        /// How often what runs there had changed.
        change: u64,
    },
    /// The scheduler is to be woken.
    Wake,
    /// The workers give account.
    Account,
}

/// The events to come.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(Nanos, u64, Due)>>,
    planned: u64,
}

impl Events {
    pub(crate) fn plan(&mut self, at: Nanos, due: Due) {
        self.planned += 1;
        self.heap.push(Reverse((at, self.planned, due)));
    }

    /// When the next is due.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Nanos, Due)> {
        self.heap.pop().map(|Reverse((at, _, due))| (at, due))
    }
}
