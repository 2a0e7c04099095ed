//! What is known of a function, and its requests that wait.

use std::collections::BTreeMap;

use crate::admission::{Candidate, WaitFor};
use crate::state::list::{List, OfFunction};
use crate::state::most_kept;
use crate::state::outlook::Prospect;
use crate::state::statistics::{Mean, Statistics};
use crate::{FunctionId, FunctionSettings, InstanceId, Nanos, RequestId};

/// The bit of a key's rank that is not set if the request was requeued.
const ARRIVED: u64 = 1 << 63;

/// A request's position in every queue: what was requeued first, then by rank, then by arrival. The
/// last bit of the arrival says whether it could wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    rank: u64,
    arrival: u64,
}

impl Key {
    /// Behind every request: a start for which none waits.
    pub(crate) const LAST: Self = Self { rank: u64::MAX, arrival: u64::MAX };

    /// That of the arrival of this number. Ranks from 2^63 on count as equal.
    pub(crate) fn new(rank: u64, number: u64, can_wait: bool) -> Self {
        let rank = rank | ARRIVED | (rank >> 63).wrapping_neg();
        Self { rank, arrival: number << 1 | u64::from(can_wait) }
    }

    /// Whether the request could wait when it arrived.
    pub(crate) fn can_wait(self) -> bool {
        self.arrival & 1 == 1
    }

    /// The same in front of all that was not requeued.
    pub(crate) fn requeued(self) -> Self {
        Self { rank: self.rank & !ARRIVED, ..self }
    }
}

/// A request that is admitted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) id: RequestId,
    pub(crate) key: Key,
    pub(crate) arrived: Nanos,
}

/// A function and all that is counted by function.
///
/// Every request needs all of it, in three cache lines: counters, settings, statistics. What only some
/// need is in [`FunctionExtra`].
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Function {
    pub(crate) extra: Box<FunctionExtra>,
    /// Instances that can take a request now, the least recently used first.
    pub(crate) available: List<OfFunction>,
    /// Admitted requests that have not ended.
    pub(crate) in_flight: u32,
    /// Instances that do not retire, by what they do.
    pub(crate) starting: u32,
    pub(crate) idle: u32,
    pub(crate) active: u32,
    /// Requests that those instances can serve at once.
    pub(crate) capacity: u64,
    /// Requests that those instances serve.
    pub(crate) serving: u32,
    /// Instances that are never removed for being idle.
    pub(crate) kept: u32,
    /// The lengths of `unbound` and `bound`, and how many of the latter wait for instances that
    /// retire.
    pub(crate) unbound_count: u32,
    pub(crate) bound_count: u32,
    pub(crate) bound_to_retiring: u32,
    /// What the first of the backlog waits for; None if there is none.
    pub(crate) waits_for: Option<WaitFor>,
    pub(crate) deleted: bool,
    /// Its last instance failed to start or ended before any request: none is started without one.
    pub(crate) is_broken: bool,
    /// Whether it is among the functions that wait for room to start an instance, at `parked_at`.
    pub(crate) is_parked: bool,
    pub(crate) settings: FunctionSettings,
    pub(crate) statistics: Statistics,
}

const _: () = assert!(size_of::<Function>() == 3 * 64);

/// What is known of a function, too, and seldom asked.
#[derive(Debug)]
pub(crate) struct FunctionExtra {
    pub(crate) id: FunctionId,
    /// Requests that wait to be admitted.
    pub(crate) backlog: BTreeMap<Key, Candidate>,
    /// Admitted requests for which no instance is being started.
    pub(crate) unbound: BTreeMap<Key, Request>,
    /// Admitted requests, each with the starting instance that was started for it.
    pub(crate) bound: BTreeMap<Key, (Request, usize)>,
    /// Starting instances with room for further requests, by age.
    pub(crate) spare: BTreeMap<InstanceId, usize>,
    pub(crate) parked_at: Key,
    /// Connections to it that have asked for nothing yet.
    pub(crate) connecting: u32,
    /// Instances on the account of hints.
    pub(crate) on_hint: u32,
    /// Times that starts of instances took.
    pub(crate) initialization: Mean,
    /// What is expected of its invocations, where policies read that.
    pub(crate) prospect: Prospect,
    /// All its instances, in no order.
    pub(crate) members: Vec<u32>,
}

impl Default for Function {
    /// None: what is in a free slot.
    fn default() -> Self {
        Self::new(FunctionId(0), FunctionSettings::default())
    }
}

impl Function {
    pub(crate) fn new(id: FunctionId, settings: FunctionSettings) -> Self {
        let extra = FunctionExtra {
            id,
            backlog: BTreeMap::new(),
            unbound: BTreeMap::new(),
            bound: BTreeMap::new(),
            spare: BTreeMap::new(),
            parked_at: Key::LAST,
            connecting: 0,
            on_hint: 0,
            initialization: Mean::default(),
            prospect: Prospect::default(),
            members: Vec::new(),
        };
        Self {
            extra: Box::new(extra),
            available: List::default(),
            in_flight: 0,
            starting: 0,
            idle: 0,
            active: 0,
            capacity: 0,
            serving: 0,
            kept: 0,
            unbound_count: 0,
            bound_count: 0,
            bound_to_retiring: 0,
            waits_for: None,
            deleted: false,
            is_broken: false,
            is_parked: false,
            settings,
            statistics: Statistics::default(),
        }
    }

    /// Admitted requests that no instance serves yet.
    pub(crate) fn waiting(&self) -> u32 {
        self.unbound_count + self.bound_count
    }

    /// Instances that do not retire.
    pub(crate) fn instances(&self) -> u32 {
        self.starting + self.idle + self.active
    }

    /// Whether a start may be missing: admitted requests wait, a start waits for room, or it has fewer
    /// instances than it is to have ready.
    pub(crate) fn lacks_instances(&self) -> bool {
        self.waiting() > 0 || self.is_parked || self.instances() < self.settings.min_instances
    }

    /// The position of the first of the backlog.
    pub(crate) fn first_key(&self) -> Option<Key> {
        self.extra.backlog.first_key_value().map(|(key, _)| *key)
    }

    /// Whether one more of its instances is to be kept ready, where so many of all functions' are.
    pub(crate) fn may_keep_more(&self, kept_of_all: u32, limit: u64) -> bool {
        self.kept < self.settings.min_instances && u64::from(kept_of_all) < most_kept(limit)
    }

    /// Where a start for it queues.
    pub(crate) fn start_key(&self) -> Key {
        self.extra.unbound.first_key_value().map_or(Key::LAST, |(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_requeued_comes_first_then_rank_then_arrival() {
        let requeued = [Key::new(9, 1, true).requeued(), Key::new(u64::MAX, 0, true).requeued()];
        let arrived = [
            Key::new(0, 7, true),
            Key::new(0, 8, true),
            Key::new(5, 2, true),
            Key::new(u64::MAX, 3, true),
        ];
        let keys: Vec<Key> = requeued.into_iter().chain(arrived).chain([Key::LAST]).collect();
        assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]), "{keys:?}");
        assert!(Key::new(1 << 63, 1, true) < Key::new(u64::MAX, 2, true));
    }
}
