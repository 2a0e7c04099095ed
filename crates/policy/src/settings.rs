//! What a function asks for, and what a worker has.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use crate::Nanos;

/// An amount of CPU and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Resources {
    /// In micro-vCPU.
    pub cpu: u64,
    /// In bytes.
    pub memory: u64,
}

impl Resources {
    /// No CPU and no memory.
    pub const ZERO: Self = Self { cpu: 0, memory: 0 };
    /// More than anyone can use: the capacity of a worker whose resources are not counted.
    pub const UNBOUNDED: Self = Self { cpu: u64::MAX, memory: u64::MAX };

    /// Whether this much can be taken out of `available`.
    pub fn fits(self, available: Self) -> bool {
        self.cpu <= available.cpu && self.memory <= available.memory
    }
}

impl Add for Resources {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory: self.memory.saturating_add(other.memory),
        }
    }
}

/// The difference, or zero where more is taken than there is.
impl Sub for Resources {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory: self.memory.saturating_sub(other.memory),
        }
    }
}

impl AddAssign for Resources {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Resources {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

/// What a function's callers wait for: an answer, or a batch of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Qos {
    /// Somebody waits for the answer.
    #[default]
    Interactive,
    /// Throughput matters, latency does not.
    Batch,
}

/// How an idle instance is kept from working at its owner's or the platform's expense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pause {
    /// Nothing of it runs.
    Freeze,
    /// It runs on with next to no CPU.
    ScaleDown,
}

/// What a function's owner asks of the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionSettings {
    /// How long an instance may idle before it is removed.
    pub keep_alive: Nanos,
    /// How long an instance may idle before it is paused.
    pub pause_after: Nanos,
    /// How it is paused then; None lets it run as usual for as long as it is kept.
    pub pause: Option<Pause>,
    /// Requests in flight at most (Lambda's reserved concurrency); 0 lets none in.
    pub max_in_flight: u32,
    /// Requests that one instance serves at once; 0 counts as 1.
    pub concurrency: u32,
    /// Instances kept ready, whether requests come or not.
    pub min_instances: u32,
    /// Instances at most; those that are being stopped, and those of an older version that still
    /// serve, do not count.
    pub max_instances: u32,
    /// Instances at most that are kept or started on the account of hints.
    pub hint_instances: u32,
    /// CPU and memory allocated to an instance.
    pub allocation: Resources,
    /// Micro-vCPU of the allocation that are spot, not reserved.
    pub spot_cpu: u64,
    /// Whether an instance's memory may be taken while it serves.
    pub preemptible: bool,
    /// What its callers wait for.
    pub qos: Qos,
}

impl FunctionSettings {
    /// What an instance has for itself while it serves: the CPU that is not spot, and the memory
    /// unless that is preemptible.
    pub fn reservation(&self) -> Resources {
        Resources {
            cpu: self.allocation.cpu.saturating_sub(self.spot_cpu),
            memory: if self.preemptible { 0 } else { self.allocation.memory },
        }
    }
}

impl Default for FunctionSettings {
    /// One request per instance, as many instances as are needed, each kept for ten minutes.
    fn default() -> Self {
        Self {
            keep_alive: 600_000_000_000,
            pause_after: 0,
            pause: None,
            max_in_flight: u32::MAX,
            concurrency: 1,
            min_instances: 0,
            max_instances: u32::MAX,
            hint_instances: 0,
            allocation: Resources::ZERO,
            spot_cpu: 0,
            preemptible: false,
            qos: Qos::Interactive,
        }
    }
}

/// What a worker has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// CPU and memory that may be allocated to instances.
    pub resources: Resources,
    /// Instances on the worker; also its share of the requests that may be in flight.
    pub max_instances: u32,
}

impl Capacity {
    /// That of a worker that takes no instances.
    pub(crate) const NONE: Self = Self { resources: Resources::ZERO, max_instances: 0 };
}

/// What an invocation used; None where it was not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// From the beginning of the execution to its end.
    pub duration: Nanos,
    /// CPU time.
    pub cpu: Option<Nanos>,
    /// Average bytes.
    pub memory: Option<u64>,
}

/// CPUs of a machine, numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CpuSet([u64; 4]);

impl CpuSet {
    /// CPUs that a set can hold.
    pub const MAX_CPUS: usize = 256;

    /// Adds a CPU; false if it is beyond [`Self::MAX_CPUS`].
    pub fn insert(&mut self, cpu: usize) -> bool {
        match self.0.get_mut(cpu / 64) {
            Some(word) => {
                *word |= 1 << (cpu % 64);
                true
            }
            None => false,
        }
    }

    /// Whether the CPU is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.get(cpu / 64).is_some_and(|word| word & (1 << (cpu % 64)) != 0)
    }

    /// Its CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..Self::MAX_CPUS).filter(|cpu| self.contains(*cpu))
    }

    /// How many CPUs it holds.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut set = Self::default();
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_leaves_out_what_is_spot_or_preemptible() {
        let settings = FunctionSettings {
            allocation: Resources { cpu: 3_000_000, memory: 512 },
            spot_cpu: 1_000_000,
            ..FunctionSettings::default()
        };
        assert_eq!(settings.reservation(), Resources { cpu: 2_000_000, memory: 512 });
        let batch = FunctionSettings { spot_cpu: u64::MAX, preemptible: true, ..settings };
        assert_eq!(batch.reservation(), Resources::ZERO);
    }

    #[test]
    fn a_cpu_set_holds_what_was_put_in() {
        let set: CpuSet = [3, 64, 255, 256].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [3, 64, 255]);
        assert_eq!((set.len(), set.is_empty()), (3, false));
        assert!(!set.contains(4) && !set.contains(999));
    }
}
