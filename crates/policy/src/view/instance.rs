//! An instance as policies see it.

use super::{FunctionView, View, WorkerView};
use crate::state::{Instance, Phase, State, Volume};
use crate::{InstanceId, Nanos, Pause, Resources};

/// An instance.
#[derive(Debug, Clone, Copy)]
pub struct InstanceView<'a> {
    pub(super) state: &'a State,
    pub(super) slot: usize,
    pub(super) instance: &'a Instance,
}

impl<'a> InstanceView<'a> {
    pub(super) fn new(state: &'a State, slot: usize) -> Self {
        Self { state, slot, instance: &state.instances[slot] }
    }

    /// Its name.
    pub fn id(&self) -> InstanceId {
        self.instance.id
    }

    /// What it is an instance of.
    pub fn function(&self) -> FunctionView<'a> {
        View::new(self.state).function_at(self.instance.function())
    }

    /// Where it is.
    pub fn worker(&self) -> WorkerView<'a> {
        WorkerView::new(self.state, self.instance.worker())
    }

    /// What it does.
    pub fn phase(&self) -> Phase {
        self.instance.phase
    }

    /// Since when: for an active one, since it took a request while it served none.
    pub fn since(&self) -> Nanos {
        self.instance.since
    }

    /// Requests that it serves.
    pub fn serving(&self) -> usize {
        self.instance.serving.len()
    }

    /// Requests that it was given so far.
    pub fn served(&self) -> u64 {
        u64::from(self.instance.served)
    }

    /// Requests that it can serve at once.
    pub fn concurrency(&self) -> u32 {
        self.instance.concurrency
    }

    /// Whether it is there on the account of hints.
    pub fn is_on_hint(&self) -> bool {
        self.instance.on_hint
    }

    /// What was done to it while it idles, if anything.
    pub fn paused(&self) -> Option<Pause> {
        self.instance.paused
    }

    /// CPU and memory allocated to it.
    pub fn allocation(&self) -> Resources {
        self.state.size(self.slot).allocation
    }

    /// What it has of them for itself while it serves.
    pub fn reservation(&self) -> Resources {
        self.state.size(self.slot).reservation
    }

    /// Whether it may be evicted now.
    pub fn is_evictable(&self) -> bool {
        self.instance.is_evictable()
    }

    /// Whether it may be stopped while it serves.
    pub fn is_preemptible(&self) -> bool {
        self.instance.preemptible
    }

    /// What it has used since [`Self::since`], by its samples; its allocation if it was never sampled.
    pub fn volume(&self) -> Volume {
        let extra = &self.state.extras[self.slot];
        extra.volume(self.allocation(), self.since(), self.state.now)
    }

    /// What it uses, by the last sample; zero if it was never sampled.
    pub fn used(&self) -> Resources {
        self.state.extras[self.slot].used
    }
}
