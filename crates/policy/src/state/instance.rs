//! What is known of an instance.

use smallvec::SmallVec;

use crate::state::function::{Key, Request};
use crate::{InstanceId, Nanos, Pause, Resources, StopReason};

/// What an instance does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It is being started.
    Starting,
    /// It serves nothing and waits for requests.
    Idle,
    /// It serves at least one request.
    Active,
    /// It is to be stopped while it serves.
    Preempting,
    /// It is being stopped, or is gone and the ends of its requests are still to be reported.
    Stopping,
}

/// An instance, from the decision to start it until it is reported gone.
///
/// Each request goes to another instance than the last, mostly, so that its size counts: it is as
/// many cache misses.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) id: InstanceId,
    pub(crate) function: usize,
    pub(crate) worker: usize,
    pub(crate) phase: Phase,
    /// It is to be stopped as soon as it serves nothing.
    pub(crate) retiring: Option<StopReason>,
    /// Removed only when its function's settings or version change.
    pub(crate) kept: bool,
    pub(crate) preemptible: bool,
    pub(crate) paused: Option<Pause>,
    /// How an idle one is paused, if it is, at `pause_at`.
    pub(crate) pause: Option<Pause>,
    pub(crate) concurrency: u32,
    /// Since when it is in its phase; an active one keeps the time of its first request.
    pub(crate) since: Nanos,
    pub(crate) pause_at: Nanos,
    /// When an idle one is removed.
    pub(crate) stop_at: Nanos,
    pub(crate) serving: SmallVec<[Request; 1]>,
    /// The requests that it was started for and that wait for it.
    pub(crate) bound: Vec<Key>,
    /// Requests that it was given so far.
    pub(crate) served: u64,
    /// Its position among the available instances of its function.
    pub(crate) function_ticket: u64,
    /// Its position among the idle or the active instances of its worker.
    pub(crate) worker_ticket: u64,
    /// As its function's settings were when it was started.
    pub(crate) allocation: Resources,
    pub(crate) reservation: Resources,
    /// What it uses, by the last sample.
    pub(crate) used: Resources,
    /// Positions in the lists of members of its function and worker.
    pub(crate) function_index: usize,
    pub(crate) worker_index: usize,
}

impl Instance {
    /// Whether it can take a request now.
    pub(crate) fn is_available(&self) -> bool {
        self.retiring.is_none()
            && (self.phase == Phase::Idle
                || self.phase == Phase::Active && self.serving.len() < self.concurrency as usize)
    }

    /// Whether further requests may be bound to it while it starts.
    pub(crate) fn is_spare(&self) -> bool {
        self.phase == Phase::Starting
            && self.retiring.is_none()
            && self.bound.len() < self.concurrency as usize
    }

    /// Whether it can give up its room without a request lost.
    pub(crate) fn is_evictable(&self) -> bool {
        self.phase == Phase::Idle && !self.kept
    }

    /// Whether it serves and may be stopped nevertheless.
    pub(crate) fn is_preemptible(&self) -> bool {
        self.phase == Phase::Active && self.preemptible
    }

    /// Whether it takes up room on its worker.
    pub(crate) fn takes_room(&self) -> bool {
        self.phase != Phase::Stopping
    }

    /// The memory that its end will free, if it is on its way.
    pub(crate) fn freeing(&self) -> u64 {
        match self.phase {
            // Gone already.
            Phase::Stopping if !self.serving.is_empty() => 0,
            Phase::Stopping | Phase::Preempting if self.used.memory > 0 => self.used.memory,
            Phase::Stopping | Phase::Preempting => self.allocation.memory,
            Phase::Starting | Phase::Idle | Phase::Active => 0,
        }
    }
}
