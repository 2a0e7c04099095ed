//! What is set of the policies for all functions.

use crate::Nanos;

const SECOND: Nanos = 1_000_000_000;

/// Numbers that policies read, for all functions alike; each says whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Requests that may wait for each instance before another is started: `queue-per-instance`.
    pub queue_length: u32,
    /// Percent of its concurrency that an instance is to serve on average: `concurrency-target`.
    pub target_utilization: u32,
    /// The time over which the concurrency is averaged: `concurrency-target`.
    pub scaling_window: Nanos,
    /// How often the instances are counted anew: `concurrency-target`.
    pub scaling_tick: Nanos,
    /// How long the last instance is kept once none is wanted: `concurrency-target`.
    pub scale_to_zero_delay: Nanos,
    /// Whether idle instances beyond the target are stopped: `concurrency-target`.
    pub scale_down: bool,
    /// How long an idle instance is kept at least: `uniform`, `opportunistic`.
    pub keep_alive_min: Nanos,
    /// What locality weighs against alignment, in percent: `leopard` placement.
    pub locality_weight: u32,
    /// Percent of the workers' CPUs in use from which the load is high: `leopard` placement, `hermod`.
    pub high_load: u32,
    /// Percent of a worker's CPUs that batch work may be expected to use with all else: `leopard`
    /// admission.
    pub cpu_overcommit: u32,
    /// For how many times its own duration, or volume, a request may be overtaken:
    /// `shortest-job-first`, `smallest-volume-first`, `backfill`.
    pub overtaking_times: u32,
    /// For how long a request may be overtaken at most: the same.
    pub overtaking_max: Nanos,
    /// The width of a bin of idle times, of which there are 240: `histogram`.
    pub histogram_bin: Nanos,
    /// How far ahead a hint may be: `hints`.
    pub hint_ahead: Nanos,
    /// How much earlier or later than said what a hint says may come, where that does not say: `hints`.
    pub hint_within: Nanos,
}

impl Parameters {
    /// The rank of a request among those that wait, where the least `cost` comes first within the bounds
    /// of `overtaking_times` and `overtaking_max`.
    pub(crate) fn rank(&self, arrived: Nanos, cost: Nanos) -> u64 {
        arrived.saturating_add(self.overtaking(cost))
    }

    /// For how long a request of this cost may be overtaken.
    pub(crate) fn overtaking(&self, cost: Nanos) -> Nanos {
        cost.saturating_mul(self.overtaking_times.into()).min(self.overtaking_max)
    }
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            queue_length: 1,
            target_utilization: 70,
            scaling_window: 60 * SECOND,
            scaling_tick: 2 * SECOND,
            scale_to_zero_delay: 30 * SECOND,
            scale_down: true,
            keep_alive_min: 0,
            locality_weight: 100,
            high_load: 70,
            cpu_overcommit: 200,
            overtaking_times: 10,
            overtaking_max: 60 * SECOND,
            histogram_bin: 60 * SECOND,
            hint_ahead: 24 * 3_600 * SECOND,
            hint_within: SECOND,
        }
    }
}
