//! The function's home worker, or the next in its order of the workers that has room, as OpenWhisk does.
//!
//! The order is that of hashes of the function's and the workers' ids (rendezvous hashing: Thaler and
//! Ravishankar 1998), so that functions are spread evenly, and a worker that joins or leaves moves no
//! others than its own.

use rustc_hash::FxHashMap;

use super::Placement;
use crate::{FunctionId, FunctionView, Random, View, WorkerId};

/// Positions of workers that are remembered for all functions together.
const REMEMBERED: usize = 1 << 22;

/// Places by hashes.
#[derive(Debug, Default)]
pub struct ConsistentHashing {
    orders: Orders,
}

/// Makes the policy.
pub fn policy() -> Box<dyn Placement> {
    Box::new(ConsistentHashing::default())
}

/// The functions' orders of the workers, remembered until those change.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    version: u64,
    orders: FxHashMap<FunctionId, Box<[u32]>>,
}

impl Orders {
    /// The slots of the workers in the function's order, its home first.
    pub(crate) fn of(&mut self, view: View<'_>, function: FunctionId) -> &[u32] {
        let version = view.cluster_version();
        if self.version != version {
            self.version = version;
            self.orders.clear();
        }
        if let Some(order) = self.orders.values().next()
            && self.orders.len() * order.len().max(1) > REMEMBERED
            && !self.orders.contains_key(&function)
        {
            self.orders.clear();
        }
        self.orders.entry(function).or_insert_with(|| {
            let mut slots: Vec<_> = view.worker_slots().map(|slot| slot as u32).collect();
            slots
                .sort_by_cached_key(|slot| distance(function, view.worker_at(*slot as usize).id()));
            slots.into_boxed_slice()
        })
    }
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
        let order = self.orders.of(view, function.id());
        let mut workers = order.iter().map(|slot| view.worker_at(*slot as usize));
        workers.find(|worker| worker.takes(function)).map(|worker| worker.id())
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
