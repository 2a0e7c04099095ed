//! Which cores of a worker are reserved for which instance.

use rustc_hash::FxHashMap;

use crate::{CpuSet, InstanceId, InstanceView, WorkerId};

/// What a core has, in micro-vCPU.
const CORE: u64 = 1_000_000;

/// The cores of all workers.
#[derive(Debug, Default)]
pub(crate) struct Cores {
    /// What is taken of each core.
    taken: FxHashMap<WorkerId, Vec<u64>>,
    /// By instance: where, of which core, and how much.
    held: FxHashMap<InstanceId, (WorkerId, Vec<(usize, u64)>)>,
}

/// Cores that were found for an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) cpus: CpuSet,
    /// Whether they are whole, and so nobody else's.
    pub(crate) are_whole: bool,
}

impl Cores {
    /// Takes what is reserved for an instance: whole cores first, the rest of a core where it fits most
    /// tightly, and in pieces where it fits nowhere. Nothing for an instance without reserved CPU, or
    /// where the worker's CPU is not counted.
    pub(crate) fn take(&mut self, instance: &InstanceView<'_>) -> Option<Taken> {
        let (reserved, worker) = (instance.reservation().cpu, instance.worker());
        let capacity = worker.capacity().resources.cpu;
        if reserved == 0 || capacity > CORE * CpuSet::MAX_CPUS as u64 {
            return None;
        }
        self.give_back(instance.id());
        let taken = self.taken.entry(worker.id()).or_default();
        taken.resize(capacity.div_ceil(CORE) as usize, 0);
        let parts = find(taken, capacity, reserved);
        for (core, part) in &parts {
            taken[*core] += part;
        }
        let cpus: CpuSet = parts.iter().map(|(core, _)| *core).collect();
        self.held.insert(instance.id(), (worker.id(), parts));
        Some(Taken { cpus, are_whole: cpus.len() as u64 * CORE == reserved })
    }

    /// Gives back what an instance has, if anything.
    pub(crate) fn give_back(&mut self, instance: InstanceId) {
        let Some((worker, parts)) = self.held.remove(&instance) else { return };
        let Some(taken) = self.taken.get_mut(&worker) else { return };
        for (core, part) in parts {
            if let Some(of_core) = taken.get_mut(core) {
                *of_core = of_core.saturating_sub(part);
            }
        }
    }
}

/// Cores with so much free together, and how much of each; the last core may be less than a whole one.
fn find(taken: &[u64], capacity: u64, reserved: u64) -> Vec<(usize, u64)> {
    let free = |core: usize| {
        let size = (capacity - core as u64 * CORE).min(CORE);
        size.saturating_sub(taken[core])
    };
    let mut left = reserved;
    let mut parts: Vec<(usize, u64)> = Vec::new();
    for core in 0..taken.len() {
        if left >= CORE && free(core) == CORE {
            parts.push((core, CORE));
            left -= CORE;
        }
    }
    let rest = |parts: &[(usize, u64)]| {
        let used: Vec<usize> = parts.iter().map(|(core, _)| *core).collect();
        (0..taken.len()).filter(move |core| !used.contains(core) && free(*core) > 0)
    };
    while left > 0 {
        let tightest = rest(&parts).filter(|core| free(*core) >= left).min_by_key(|it| free(*it));
        let next = tightest.or_else(|| rest(&parts).max_by_key(|core| free(*core)));
        // Admission lets in no more than there is; what it overlooked has fewer cores.
        let Some(core) = next else { break };
        let part = free(core).min(left);
        parts.push((core, part));
        left -= part;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_cores_are_whole_and_parts_share_one() {
        assert_eq!(find(&[0, 0, 0], 3 * CORE, 2 * CORE), [(0, CORE), (1, CORE)]);
        assert_eq!(find(&[CORE, 0], 2 * CORE, CORE / 2), [(1, CORE / 2)]);
        let half = CORE / 2;
        assert_eq!(find(&[half, 0], 2 * CORE, half), [(0, half)], "the tightest");
        assert_eq!(find(&[half, 0], 2 * CORE, CORE + half), [(1, CORE), (0, half)]);
        assert_eq!(find(&[half, half], 2 * CORE, CORE), [(1, half), (0, half)], "in pieces");
        assert_eq!(find(&[0, 0], CORE + half, CORE + half), [(0, CORE), (1, half)]);
        assert_eq!(find(&[CORE], CORE, 1), [], "there is nothing left");
    }
}
