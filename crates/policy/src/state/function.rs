//! What is known of a function, and its requests that wait.

use std::collections::BTreeMap;

use crate::admission::WaitFor;
use crate::state::queue::Queue;
use crate::state::statistics::Statistics;
use crate::{FunctionId, FunctionSettings, InstanceId, Nanos, RequestId};

/// A request's position in every queue: what was requeued first, then by rank, then by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// False sorts first: requeued.
    pub(crate) new: bool,
    pub(crate) rank: u64,
    /// The number of the arrival.
    pub(crate) arrival: u64,
}

impl Key {
    /// Behind every request: a start for which none waits.
    pub(crate) const LAST: Self = Self { new: true, rank: u64::MAX, arrival: u64::MAX };
}

/// A request that waits or is served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) key: Key,
    pub(crate) arrived: Nanos,
    pub(crate) can_wait: bool,
}

/// A function and all that is counted by function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) id: FunctionId,
    pub(crate) settings: FunctionSettings,
    pub(crate) deleted: bool,
    /// Its last instance failed to start or ended before any request: none is started without one.
    pub(crate) is_broken: bool,
    pub(crate) statistics: Statistics,
    /// Requests that wait to be admitted.
    pub(crate) backlog: BTreeMap<Key, Request>,
    /// What the first of the backlog waits for.
    pub(crate) waits_for: Option<WaitFor>,
    /// Admitted requests for which no instance is being started.
    pub(crate) unbound: BTreeMap<Key, Request>,
    /// Admitted requests, each with the starting instance that was started for it.
    pub(crate) bound: BTreeMap<Key, (Request, usize)>,
    /// How many of `bound` wait for instances that retire.
    pub(crate) bound_to_retiring: u32,
    /// Its position among the functions that wait for room to start an instance.
    pub(crate) parked: Option<Key>,
    /// Admitted requests that have not ended.
    pub(crate) in_flight: u32,
    /// All its instances, in no order.
    pub(crate) members: Vec<usize>,
    /// Starting instances with room for further requests, by age.
    pub(crate) spare: BTreeMap<InstanceId, usize>,
    /// Instances that can take a request now, the least recently used first.
    pub(crate) available: Queue,
    /// Instances that do not retire, by what they do.
    pub(crate) starting: u32,
    pub(crate) idle: u32,
    pub(crate) active: u32,
    /// Requests that those instances can serve at once.
    pub(crate) slots: u64,
    /// Requests that those instances serve.
    pub(crate) serving: u64,
    /// Instances that are never removed for being idle.
    pub(crate) kept: u32,
}

impl Function {
    pub(crate) fn new(id: FunctionId, settings: FunctionSettings) -> Self {
        Self {
            id,
            settings,
            deleted: false,
            is_broken: false,
            statistics: Statistics::default(),
            backlog: BTreeMap::new(),
            waits_for: None,
            unbound: BTreeMap::new(),
            bound: BTreeMap::new(),
            bound_to_retiring: 0,
            parked: None,
            in_flight: 0,
            members: Vec::new(),
            spare: BTreeMap::new(),
            available: Queue::default(),
            starting: 0,
            idle: 0,
            active: 0,
            slots: 0,
            serving: 0,
            kept: 0,
        }
    }

    /// Admitted requests that no instance serves yet.
    pub(crate) fn waiting(&self) -> usize {
        self.unbound.len() + self.bound.len()
    }

    /// Instances that do not retire.
    pub(crate) fn instances(&self) -> u32 {
        self.starting + self.idle + self.active
    }

    /// Where a start for it queues.
    pub(crate) fn start_key(&self) -> Key {
        self.unbound.first_key_value().map_or(Key::LAST, |(key, _)| *key)
    }
}
