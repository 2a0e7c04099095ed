//! Requests that wait, by function, and functions that wait for others.

use std::ops::Bound;

use crate::Qos;
use crate::admission::{Candidate, WaitFor};
use crate::state::{Key, Request, State};

/// Queues of functions whose first waiting request waits for others than its own function.
pub(crate) const QUEUES: usize = 3;

impl State {
    /// Puts a request of the function among those that wait to be admitted.
    pub(crate) fn push_backlog(&mut self, slot: usize, key: Key, request: Candidate) {
        self.counts.backlog += 1;
        self.functions[slot].extra.backlog.insert(key, request);
    }

    /// Takes the first request of the function's backlog.
    pub(crate) fn pop_backlog(&mut self, slot: usize) -> Option<Candidate> {
        let (_, request) = self.functions[slot].extra.backlog.pop_first()?;
        self.counts.backlog -= 1;
        Some(request)
    }

    pub(crate) fn push_unbound(&mut self, slot: usize, request: Request) {
        self.counts.waiting += 1;
        let function = &mut self.functions[slot];
        function.unbound_count += 1;
        function.extra.unbound.insert(request.key, request);
    }

    pub(crate) fn pop_unbound(&mut self, slot: usize) -> Option<Request> {
        let function = &mut self.functions[slot];
        let (_, request) = function.extra.unbound.pop_first()?;
        function.unbound_count -= 1;
        self.counts.waiting -= 1;
        Some(request)
    }

    /// Takes a request that waits for a starting instance, whose list of them the caller changes.
    pub(crate) fn take_bound(&mut self, slot: usize, key: Key) -> Option<(Request, usize)> {
        let function = &mut self.functions[slot];
        let bound = function.extra.bound.remove(&key)?;
        function.bound_count -= 1;
        self.counts.waiting -= 1;
        Some(bound)
    }

    /// Has the first unbound requests wait for this starting instance, as many as it can serve.
    pub(crate) fn bind(&mut self, instance: usize) {
        self.unlink(instance);
        self.bind_unlinked(instance);
        self.link(instance);
    }

    /// The same for an instance that is not linked.
    pub(crate) fn bind_unlinked(&mut self, instance: usize) {
        let starting = &self.instances[instance];
        let keys = &mut self.extras[instance].bound;
        let function = &mut self.functions[starting.function()];
        while keys.len() < starting.concurrency as usize {
            let Some((key, request)) = function.extra.unbound.pop_first() else { break };
            function.unbound_count -= 1;
            function.bound_count += 1;
            keys.push(key);
            function.extra.bound.insert(key, (request, instance));
        }
    }

    /// Says what the first request of the function's backlog waits for; None if there is none.
    pub(crate) fn wait_for(&mut self, slot: usize, what: Option<WaitFor>) {
        self.leave_queue(slot);
        let function = &mut self.functions[slot];
        let Some((key, _)) = function.extra.backlog.first_key_value() else { return };
        function.waits_for = what;
        if let Some(queue) = what.and_then(|what| queue_of(what, function.settings.qos)) {
            self.queues[queue].insert((*key, slot));
        }
    }

    /// Takes the function out of the queue that it is in; before its backlog or settings change.
    pub(crate) fn leave_queue(&mut self, slot: usize) {
        let function = &mut self.functions[slot];
        let queue =
            function.waits_for.take().and_then(|what| queue_of(what, function.settings.qos));
        if let (Some(queue), Some((key, _))) = (queue, function.extra.backlog.first_key_value()) {
            self.queues[queue].remove(&(*key, slot));
        }
    }

    /// The function that is first in a queue, and its request's key.
    pub(crate) fn first_in_queue(&self, queue: usize) -> Option<(Key, usize)> {
        self.queues[queue].first().copied()
    }

    /// The function behind this one in a queue, which may have left it, and its request's key.
    pub(crate) fn next_in_queue(&self, queue: usize, after: (Key, usize)) -> Option<(Key, usize)> {
        self.queues[queue].range((Bound::Excluded(after), Bound::Unbounded)).next().copied()
    }

    /// Whether an interactive request waits for room.
    pub(crate) fn is_interactive_waiting(&self) -> bool {
        queue_of(WaitFor::Class, Qos::Interactive)
            .is_some_and(|queue| !self.queues[queue].is_empty())
    }

    /// The queues' numbers.
    pub(crate) fn queues(&self) -> std::ops::Range<usize> {
        0..QUEUES
    }

    /// What a request of this key has to wait for because an earlier one does. One that cannot wait
    /// is held up by none that can and waits for the cluster, where that has a limit of its own.
    #[inline]
    pub(crate) fn earlier_waits_for(&self, key: Key, qos: Qos) -> Option<WaitFor> {
        if self.counts.backlog == 0 { None } else { self.first_waits_for(key, qos) }
    }

    fn first_waits_for(&self, key: Key, qos: Qos) -> Option<WaitFor> {
        [WaitFor::Cluster, WaitFor::Class].into_iter().find(|what| {
            let first = queue_of(*what, qos).and_then(|queue| self.first_in_queue(queue));
            first.is_some_and(|(first, _)| {
                first < key && (*what == WaitFor::Class || key.can_wait() || !first.can_wait())
            })
        })
    }

    /// Whether a request waits to be admitted, or a start for room.
    pub(crate) fn is_anything_waiting(&self) -> bool {
        self.counts.backlog > 0 || !self.parked.is_empty()
    }

    /// Has the function wait for room to start an instance.
    pub(crate) fn park(&mut self, slot: usize) {
        self.unpark(slot);
        let function = &mut self.functions[slot];
        function.is_parked = true;
        function.extra.parked_at = function.start_key();
        self.parked.insert((function.extra.parked_at, slot));
    }

    /// Takes the function out of those that wait for room; whether it was one of them.
    pub(crate) fn unpark(&mut self, slot: usize) -> bool {
        let function = &mut self.functions[slot];
        let was_parked = std::mem::take(&mut function.is_parked);
        if was_parked {
            self.parked.remove(&(function.extra.parked_at, slot));
        }
        was_parked
    }

    /// The function that is first among those that wait for room.
    pub(crate) fn first_parked(&self) -> Option<(Key, usize)> {
        self.parked.first().copied()
    }
}

/// The queue for what a request of this class waits for.
pub(crate) fn queue_of(what: WaitFor, qos: Qos) -> Option<usize> {
    match (what, qos) {
        (WaitFor::Function, _) => None,
        (WaitFor::Cluster, _) => Some(0),
        (WaitFor::Class, Qos::Interactive) => Some(1),
        (WaitFor::Class, Qos::Batch) => Some(2),
    }
}
