//! A line of states of which one is active at a time.

use std::collections::VecDeque;

use super::stored::Stored;
use super::{TaskId, TimerId};
use crate::Nanos;

/// A branch of an execution: the execution itself, a branch of a parallel state, an item of a map.
#[derive(Debug)]
pub(super) struct Branch {
    pub machine: usize,
    pub state: usize,
    /// The state's input.
    pub raw: Stored,
    /// When the state was entered.
    pub entered: Nanos,
    /// How often each of the state's retriers has tried again.
    pub retries: Vec<u64>,
    /// The number and value of the item that it is about.
    pub item: Option<(usize, Stored)>,
    /// The branch that waits for it, and which of its children it is.
    pub parent: Option<(u64, usize)>,
    /// The number of its last event in the history.
    pub previous: u64,
    pub pending: Pending,
}

/// What a branch waits for.
#[derive(Debug)]
pub(super) enum Pending {
    Nothing,
    Task { task: TaskId, timer: Option<TimerId> },
    Timer(TimerId),
    Children(Children),
}

/// The branches that a parallel or map state waits for.
#[derive(Debug)]
pub(super) struct Children {
    pub results: Vec<Option<Stored>>,
    /// The bytes of the results as JSON.
    pub bytes: usize,
    pub running: Vec<u64>,
    /// Items of a map that wait for their turn, each with its number.
    pub waiting: VecDeque<(usize, Stored)>,
    /// What a map's selector finds its data in; none for parallel states.
    pub effective: Option<Stored>,
}

impl Children {
    pub(super) fn new(results: usize) -> Self {
        Self {
            results: vec![None; results],
            bytes: 0,
            running: Vec::new(),
            waiting: VecDeque::new(),
            effective: None,
        }
    }
}

impl Branch {
    pub(super) fn new(
        machine: usize,
        state: usize,
        raw: Stored,
        parent: Option<(u64, usize)>,
        previous: u64,
    ) -> Self {
        Self {
            machine,
            state,
            raw,
            entered: 0,
            retries: Vec::new(),
            item: None,
            parent,
            previous,
            pending: Pending::Nothing,
        }
    }
}
