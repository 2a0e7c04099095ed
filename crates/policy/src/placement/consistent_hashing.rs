//! The function's home worker, or the next in its order of the workers that has room, as OpenWhisk does.
//!
//! The order is that of hashes of the function's and the workers' ids (rendezvous hashing: Thaler and
//! Ravishankar 1998), so that functions are spread evenly, and a worker that joins or leaves moves no
//! others than its own.

use super::Placement;
use crate::{FunctionId, FunctionView, Random, View, WorkerId, WorkerView};

/// Places by hashes.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConsistentHashing;

/// Makes the policy.
pub fn policy() -> Box<dyn Placement> {
    Box::new(ConsistentHashing)
}

/// A number that looks random, of which each decides the other (the finalizer of SplitMix64).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// By this the function orders the workers, its home first.
pub(crate) fn distance(function: FunctionId, worker: WorkerId) -> u64 {
    // Different numbers for a function and a worker of the same id, which would cancel each other.
    mix(mix(function.0.wrapping_mul(2)) ^ mix(u64::from(worker.0) * 2 + 1))
}

impl Placement for ConsistentHashing {
    fn place(
        &mut self,
        view: View<'_>,
        _: &mut Random,
        function: &FunctionView<'_>,
    ) -> Option<WorkerId> {
        let mut workers: Vec<_> = view.workers().collect();
        workers.sort_by_key(|worker| distance(function.id(), worker.id()));
        let first = workers.iter().find(|worker| worker.takes(function));
        first.map(WorkerView::id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_leaves_moves_only_its_functions() {
        let home = |function: u64, workers: u32| {
            (0..workers).min_by_key(|worker| distance(FunctionId(function), WorkerId(*worker)))
        };
        let mut moved = 0;
        for function in 0..10_000 {
            let (before, after) = (home(function, 10), home(function, 9));
            if before == Some(9) {
                moved += 1;
            } else {
                assert_eq!(before, after, "{function}");
            }
        }
        assert!((900..1_100).contains(&moved), "{moved}");
    }
}
