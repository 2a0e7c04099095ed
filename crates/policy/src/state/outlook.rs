//! What is expected of all that workers serve, kept up to date: policies ask for it far more often than it
//! changes.

use crate::leopard::{self, Expected};
use crate::state::rooms::Room;
use crate::state::{Instance, Phase, State, Worker};
use crate::{Capacity, Resources, Usage};

/// Sums of resources, which 64 bits may not hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) cpu: u128,
    pub(crate) memory: u128,
}

impl Sum {
    fn add(&mut self, what: Resources, times: u32) {
        self.cpu += u128::from(what.cpu) * u128::from(times);
        self.memory += u128::from(what.memory) * u128::from(times);
    }

    fn remove(&mut self, what: Resources, times: u32) {
        self.cpu -= u128::from(what.cpu) * u128::from(times);
        self.memory -= u128::from(what.memory) * u128::from(times);
    }
}

/// What is expected of the instances on a worker that serve, or will once they are ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Outlook {
    /// How many there are.
    pub(crate) serving: u32,
    /// What is expected of them.
    pub(crate) all: Sum,
    /// What they use by their last samples; of one that was never sampled, what is expected.
    pub(crate) used: Sum,
    /// Sums of mean durations times what is reserved and expected, in millionths of the worker.
    pub(crate) reserved_load: u128,
    pub(crate) expected_load: u128,
}

/// How many instances of a function serve on a worker.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServingOn {
    worker: u32,
    all: u32,
    /// Those of them that were never sampled.
    unsampled: u32,
}

/// What is expected of a function's invocations, and where it serves.
#[derive(Debug, Default)]
pub(crate) struct Prospect {
    pub(crate) expected: Expected,
    /// By worker.
    serving: Vec<ServingOn>,
    /// What an instance adds to the loads of a worker of this capacity, which is nothing where it is zero.
    weights: (Resources, Weights),
}

#[derive(Debug, Clone, Copy, Default)]
struct Weights {
    reserved: u128,
    expected: u128,
}

impl Prospect {
    fn weights(&mut self, capacity: Resources) -> Weights {
        if self.weights.0 != capacity {
            self.weights = (capacity, weigh(&self.expected, capacity));
        }
        self.weights.1
    }

    /// Where the count of a worker is, or would be.
    fn position(&self, worker: u32) -> Result<usize, usize> {
        self.serving.binary_search_by_key(&worker, |on| on.worker)
    }
}

fn weigh(expected: &Expected, capacity: Resources) -> Weights {
    let load = |of| u128::from(expected.duration) * u128::from(leopard::share(of, capacity));
    Weights { reserved: load(expected.reservation), expected: load(expected.resources) }
}

impl Worker {
    /// What may still be expected of batch work without a reservation: within what is idle by the samples,
    /// and with all that is expected of the others within the memory and `cpu_overcommit` percent of
    /// the CPUs. What serves nothing has all of its CPUs to spare: else what needs them all would wait for
    /// ever where that percentage is 100 or less.
    pub(crate) fn spare(&self, cpu_overcommit: u32) -> Room {
        let Resources { cpu, memory } = self.capacity.resources;
        if self.capacity.resources == Resources::UNBOUNDED {
            return Room { resources: Resources::UNBOUNDED, instances: u32::MAX };
        }
        // Less than `cpu_overcommit` percent, in whole units.
        let most = match cpu.checked_mul(u64::from(cpu_overcommit)) {
            Some(percent) => percent.checked_sub(1).map(|below| u128::from(below / 100)),
            None => Some((u128::from(cpu) * u128::from(cpu_overcommit) - 1) / 100),
        };
        let Outlook { all, used, serving, .. } = &self.outlook;
        let most = if *serving == 0 { most.max(Some(cpu.into())) } else { most };
        let cpu = most
            .and_then(|most| most.checked_sub(all.cpu))
            .and_then(|rest| Some(rest.min(u128::from(cpu).checked_sub(used.cpu)?)));
        let memory = u128::from(memory).checked_sub(all.memory.max(used.memory));
        match (cpu, memory) {
            (Some(cpu), Some(memory)) => Room {
                resources: Resources {
                    cpu: cpu.try_into().unwrap_or(u64::MAX),
                    memory: memory.try_into().unwrap_or(u64::MAX),
                },
                instances: u32::MAX,
            },
            _ => Room::default(),
        }
    }
}

/// Whether an instance serves, or will as soon as it is ready.
fn serves(instance: &Instance) -> bool {
    matches!(instance.phase, Phase::Starting | Phase::Active | Phase::Preempting)
}

impl State {
    /// Takes note that more may be expected of a worker than before.
    fn on_spare(&mut self, slot: usize) {
        let worker = &self.workers[slot];
        let cpu_overcommit = self.parameters.cpu_overcommit;
        self.spare.raise(slot, || worker.spare(cpu_overcommit));
    }

    /// Counts an instance that is linked among those that serve, if it does.
    #[inline]
    pub(crate) fn count_serving(&mut self, slot: usize) {
        if self.expects && serves(&self.instances[slot]) {
            self.add_serving(slot);
        }
    }

    fn add_serving(&mut self, slot: usize) {
        let instance = &self.instances[slot];
        let prospect = &mut self.functions[instance.function()].extra.prospect;
        let worker = &mut self.workers[instance.worker()];
        let sample = self.extras[slot].used;
        let is_unsampled = sample == Resources::ZERO;
        let index = prospect.position(instance.worker).unwrap_or_else(|index| {
            let none = ServingOn { worker: instance.worker, all: 0, unsampled: 0 };
            prospect.serving.insert(index, none);
            index
        });
        prospect.serving[index].all += 1;
        prospect.serving[index].unsampled += u32::from(is_unsampled);
        let (expected, weights) =
            (prospect.expected.resources, prospect.weights(worker.capacity.resources));
        let outlook = &mut worker.outlook;
        outlook.serving += 1;
        outlook.all.add(expected, 1);
        outlook.used.add(if is_unsampled { expected } else { sample }, 1);
        outlook.reserved_load += weights.reserved;
        outlook.expected_load += weights.expected;
    }

    /// Takes an instance out of those that serve, if it is one of them; before it changes.
    #[inline]
    pub(crate) fn discount_serving(&mut self, slot: usize) {
        if self.expects && serves(&self.instances[slot]) {
            self.remove_serving(slot);
        }
    }

    fn remove_serving(&mut self, slot: usize) {
        let instance = &self.instances[slot];
        let prospect = &mut self.functions[instance.function()].extra.prospect;
        let worker_slot = instance.worker();
        let worker = &mut self.workers[worker_slot];
        let sample = self.extras[slot].used;
        let is_unsampled = sample == Resources::ZERO;
        let Ok(index) = prospect.position(instance.worker) else { return };
        let on = &mut prospect.serving[index];
        on.all -= 1;
        on.unsampled -= u32::from(is_unsampled);
        if on.all == 0 {
            prospect.serving.remove(index);
        }
        let (expected, weights) =
            (prospect.expected.resources, prospect.weights(worker.capacity.resources));
        let outlook = &mut worker.outlook;
        outlook.serving -= 1;
        outlook.all.remove(expected, 1);
        outlook.used.remove(if is_unsampled { expected } else { sample }, 1);
        outlook.reserved_load -= weights.reserved;
        outlook.expected_load -= weights.expected;
        self.on_spare(worker_slot);
    }

    /// Gives an instance another sample; what it was before.
    pub(crate) fn set_used(&mut self, slot: usize, used: Resources) -> Resources {
        let instance = &self.instances[slot];
        let (function, worker_slot) = (instance.function(), instance.worker());
        let serves = self.expects && serves(instance);
        let (since, allocation) = (instance.since, self.size(slot).allocation);
        let extra = &mut self.extras[slot];
        extra.volume = extra.volume(allocation, since, self.now);
        extra.sampled = self.now;
        let before = std::mem::replace(&mut extra.used, used);
        let worker = &mut self.workers[worker_slot];
        worker.used -= before;
        worker.used += used;
        self.used_cpu = self.used_cpu - u128::from(before.cpu) + u128::from(used.cpu);
        if serves && before != used {
            let prospect = &mut self.functions[function].extra.prospect;
            let expected = prospect.expected.resources;
            let (was, is) = (before == Resources::ZERO, used == Resources::ZERO);
            if let Ok(index) = prospect.position(worker_slot as u32) {
                let on = &mut prospect.serving[index];
                on.unsampled = on.unsampled - u32::from(was) + u32::from(is);
            }
            worker.outlook.used.remove(if was { expected } else { before }, 1);
            worker.outlook.used.add(if is { expected } else { used }, 1);
            self.on_spare(worker_slot);
        }
        before
    }

    /// Adds what an invocation of a function used to its past.
    #[inline]
    pub(crate) fn on_end(&mut self, function: usize, usage: &Usage) {
        self.functions[function].statistics.on_end(usage);
        self.expect_anew(function);
    }

    /// Expects of a function what its past and settings say, after either has changed.
    #[inline]
    pub(crate) fn expect_anew(&mut self, function: usize) {
        if self.expects {
            self.expect(function);
        }
    }

    fn expect(&mut self, slot: usize) {
        let function = &mut self.functions[slot];
        let after = Expected::of(&function.settings, &function.statistics);
        let prospect = &mut function.extra.prospect;
        let before = std::mem::replace(&mut prospect.expected, after);
        if before == after {
            return;
        }
        prospect.weights = (Resources::ZERO, Weights::default());
        // A worker without capacity weighs nothing, as in `weigh`.
        let mut known = (Resources::ZERO, Weights::default(), Weights::default());
        let shrinks = after.resources.cpu < before.resources.cpu
            || after.resources.memory < before.resources.memory;
        for index in 0..self.functions[slot].extra.prospect.serving.len() {
            let on = self.functions[slot].extra.prospect.serving[index];
            let worker = &mut self.workers[on.worker as usize];
            let capacity = worker.capacity.resources;
            if known.0 != capacity {
                known = (capacity, weigh(&before, capacity), weigh(&after, capacity));
            }
            let (_, was, is) = known;
            let outlook = &mut worker.outlook;
            outlook.all.remove(before.resources, on.all);
            outlook.all.add(after.resources, on.all);
            outlook.used.remove(before.resources, on.unsampled);
            outlook.used.add(after.resources, on.unsampled);
            let times = u128::from(on.all);
            outlook.reserved_load += times * is.reserved;
            outlook.reserved_load -= times * was.reserved;
            outlook.expected_load += times * is.expected;
            outlook.expected_load -= times * was.expected;
            if shrinks {
                self.on_spare(on.worker as usize);
            }
        }
    }

    /// Gives a worker another capacity.
    pub(crate) fn set_capacity(&mut self, slot: usize, capacity: Capacity) {
        let members = std::mem::take(&mut self.workers[slot].members);
        for member in &members {
            self.discount_serving(*member as usize);
        }
        let worker = &mut self.workers[slot];
        self.cpu = self.cpu - u128::from(worker.capacity.resources.cpu)
            + u128::from(capacity.resources.cpu);
        worker.capacity = capacity;
        self.cluster_version += 1;
        for member in &members {
            self.count_serving(*member as usize);
        }
        self.workers[slot].members = members;
        self.on_room(slot);
        self.on_spare(slot);
    }

    /// Sums up anew what [`Outlook`] keeps.
    #[cfg(debug_assertions)]
    pub(crate) fn sum_up(&self, worker: usize) -> Outlook {
        let mut outlook = Outlook::default();
        let known = &self.workers[worker];
        for member in known.members.iter().map(|slot| *slot as usize) {
            if !serves(&self.instances[member]) {
                continue;
            }
            let function = &self.functions[self.instances[member].function()];
            let expected = Expected::of(&function.settings, &function.statistics);
            let sample = self.extras[member].used;
            let weights = weigh(&expected, known.capacity.resources);
            outlook.serving += 1;
            outlook.all.add(expected.resources, 1);
            let is_unsampled = sample == Resources::ZERO;
            outlook.used.add(if is_unsampled { expected.resources } else { sample }, 1);
            outlook.reserved_load += weights.reserved;
            outlook.expected_load += weights.expected;
        }
        outlook
    }
}
