//! Requests that keep the least of a worker for the least time are served first, within bounds.
//!
//! `rank = arrival + overtaking_times x mean duration x share`, at most `overtaking_max` after the arrival.
//! The share is that part of a worker's CPU or memory, whichever is more, that is reserved for the
//! request; for one without a reservation, that its function used on average.
//!
//! The shortest of two jobs is not the one that is in the way least: one of a second on all cores keeps more
//! from others than one of two seconds on a single core. Where there is one server at a time,
//! the shortest job first is best for the mean of completion times; where several share servers of several
//! resources, the product of duration and share takes the duration's part (compare R. Grandl and others,
//! *Multi-resource Packing for Cluster Schedulers*, SIGCOMM 2014, section 3.3, which combines remaining work
//! with alignment). A request that needs a whole worker is not the first to wait as often, so that fewer
//! cores idle until one is empty.
//!
//! A request cannot starve, as with `shortest-job-first`. A function without a past has no volume, and is
//! known after its first invocation. Shares are of the first worker, as a unit for all.

use super::Order;
use crate::admission::Candidate;
use crate::leopard::{is_unreserved, millionths};
use crate::{FunctionView, Nanos, Random, View};

/// Ranks by mean duration times share, with a guard against starvation.
#[derive(Debug, Clone, Copy, Default)]
pub struct SmallestVolumeFirst;

/// Makes the policy.
pub fn policy() -> Box<dyn Order> {
    Box::new(SmallestVolumeFirst)
}

impl Order for SmallestVolumeFirst {
    fn rank(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
        request: &Candidate,
    ) -> u64 {
        view.parameters().rank(request.arrived, volume(view, function))
    }
}

/// Mean duration times the part of a worker that is taken for it, in ns of a whole worker.
fn volume(view: View<'_>, function: &FunctionView<'_>) -> Nanos {
    let duration = function.mean_duration().unwrap_or(0);
    let Some(worker) = view.workers().next() else { return duration };
    let capacity = worker.capacity().resources;
    let taken = if is_unreserved(function) {
        function.expected().resources
    } else {
        function.settings().reservation()
    };
    let share = millionths(taken.cpu, capacity.cpu).max(millionths(taken.memory, capacity.memory));
    (u128::from(duration) * u128::from(share) / 1_000_000) as Nanos
}
