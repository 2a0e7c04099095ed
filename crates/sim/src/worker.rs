//! A worker: what runs on it, at which rates, and what becomes of its cores and memory.

use uncia_policy::sharing::{Claim, Grant, Sharing, divide, lent_memory};
use uncia_policy::{FunctionSettings, InstanceId, Nanos, Resources, Sample};

use crate::running::{Meter, Running};
use crate::setting::Phase;
use crate::totals::{Integral, Totals};

/// The end of a phase that is not known yet, or never comes.
const UNKNOWN: Nanos = Nanos::MAX;

/// What is constant between two changes on a worker, in micro-vCPU and bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    own: u64,
    borrowed: u64,
    lent: u64,
    lent_memory: u64,
    reserved: Resources,
    memory: u64,
    idle_memory: u64,
}

/// A worker. What runs on it is in several vectors in the same order, that of the beginnings: each
/// change looks at what everybody wants and gets, and at few of the attempts themselves.
pub(crate) struct Worker {
    pub(crate) capacity: Resources,
    /// Whether it has not failed.
    pub(crate) is_up: bool,
    /// Whether what runs has changed since the cores were divided.
    pub(crate) is_changed: bool,
    pub(crate) totals: Totals,
    /// Bytes that its idle instances hold.
    idle_memory: u64,
    /// Up to when all is accounted for.
    now: Nanos,
    rates: Rates,
    /// Sums over what runs: what is reserved, bytes used, and those of them that may be taken.
    reserved: Resources,
    memory: u64,
    preemptible_memory: u64,
    instances: Vec<InstanceId>,
    claims: Vec<Claim>,
    grants: Vec<Grant>,
    ends: Vec<Nanos>,
    /// Where the attempts are.
    slots: Vec<u32>,
    attempts: Vec<Running>,
    free: Vec<u32>,
}

impl Worker {
    pub(crate) fn new(capacity: Resources) -> Self {
        Self {
            capacity,
            is_up: true,
            is_changed: false,
            totals: Totals::default(),
            idle_memory: 0,
            now: 0,
            rates: Rates::default(),
            reserved: Resources::ZERO,
            memory: 0,
            preemptible_memory: 0,
            instances: Vec::new(),
            claims: Vec::new(),
            grants: Vec::new(),
            ends: Vec::new(),
            slots: Vec::new(),
            attempts: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Accounts for the time up to `now`, in which nothing has changed.
    pub(crate) fn advance(&mut self, now: Nanos) {
        let time = now - self.now;
        if time == 0 {
            return;
        }
        self.now = now;
        let (rates, span) = (&self.rates, Integral::from(time));
        let over = |rate: u64| Integral::from(rate) * span;
        let totals = &mut self.totals;
        if self.is_up {
            totals.cpu_capacity += over(self.capacity.cpu);
            totals.memory_capacity += over(self.capacity.memory);
        }
        totals.cpu_reserved += over(rates.reserved.cpu);
        totals.cpu_own += over(rates.own);
        totals.cpu_borrowed += over(rates.borrowed);
        totals.cpu_lent += over(rates.lent);
        totals.memory_reserved += over(rates.reserved.memory);
        totals.memory_used += over(rates.memory);
        totals.memory_idle += over(rates.idle_memory);
        totals.memory_lent += over(rates.lent_memory);
    }

    /// Takes note of bytes that an idle instance holds, or holds no more.
    pub(crate) fn add_idle_memory(&mut self, bytes: u64) {
        self.idle_memory += bytes;
    }

    pub(crate) fn remove_idle_memory(&mut self, bytes: u64) {
        self.idle_memory -= bytes;
    }

    /// How many attempts run.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The position of what an instance serves.
    pub(crate) fn position(&self, instance: InstanceId) -> Option<usize> {
        self.instances.iter().position(|known| *known == instance)
    }

    /// The first position from `from` on at which a phase has ended.
    pub(crate) fn ended(&self, from: usize) -> Option<usize> {
        self.ends[from..].iter().position(|end| *end <= self.now).map(|index| from + index)
    }

    /// Adds an attempt that begins now.
    pub(crate) fn push(
        &mut self,
        mut attempt: Running,
        settings: &FunctionSettings,
        phases: &[Phase],
    ) {
        let demand = attempt.enter_next(phases).unwrap_or(0);
        let reserved = settings.reservation();
        self.reserved.cpu += reserved.cpu;
        self.reserved.memory += attempt.reserved_memory.unwrap_or(0);
        self.add_memory(&attempt);
        self.instances.push(attempt.instance);
        self.claims.push(Claim { demand, cap: settings.allocation.cpu, reserved: reserved.cpu });
        self.grants.push(Grant::default());
        self.ends.push(UNKNOWN);
        let slot = if let Some(slot) = self.free.pop() {
            self.attempts[slot as usize] = attempt;
            slot
        } else {
            self.attempts.push(attempt);
            self.attempts.len() as u32 - 1
        };
        self.slots.push(slot);
    }

    /// Begins the next phase of the attempt at a position; false if there is none.
    pub(crate) fn enter_next(&mut self, position: usize, phases: &[Phase]) -> bool {
        let attempt = &mut self.attempts[self.slots[position] as usize];
        attempt.advance(self.now, &self.grants[position]);
        let before = attempt.memory;
        let Some(demand) = attempt.enter_next(phases) else { return false };
        let after = attempt.memory;
        self.claims[position].demand = demand;
        self.ends[position] = UNKNOWN;
        self.memory = self.memory - before + after;
        if attempt.reserved_memory.is_none() {
            self.preemptible_memory = self.preemptible_memory - before + after;
        }
        true
    }

    /// Takes out the attempt at a position, accounted for up to now.
    pub(crate) fn remove(&mut self, position: usize) -> Running {
        let slot = self.slots.remove(position);
        let (grant, claim) = (self.grants.remove(position), self.claims.remove(position));
        self.instances.remove(position);
        self.ends.remove(position);
        self.free.push(slot);
        let mut attempt = self.attempts[slot as usize].clone();
        attempt.advance(self.now, &grant);
        self.reserved.cpu -= claim.reserved;
        self.reserved.memory -= attempt.reserved_memory.unwrap_or(0);
        self.memory -= attempt.memory;
        if attempt.reserved_memory.is_none() {
            self.preemptible_memory -= attempt.memory;
        }
        attempt
    }

    /// What all that runs has used so far.
    pub(crate) fn used(&self) -> Meter {
        self.slots.iter().zip(&self.grants).fold(Meter::default(), |sum, (slot, grant)| {
            let mut attempt = self.attempts[*slot as usize].clone();
            attempt.advance(self.now, grant);
            sum.with(attempt.meter)
        })
    }

    fn add_memory(&mut self, attempt: &Running) {
        self.memory += attempt.memory;
        if attempt.reserved_memory.is_none() {
            self.preemptible_memory += attempt.memory;
        }
    }

    /// Bytes that are used beyond those that there are.
    pub(crate) fn excess(&self) -> u64 {
        (self.memory + self.idle_memory).saturating_sub(self.capacity.memory)
    }

    /// Divides cores and memory anew; when the first phase ends then, if one does.
    pub(crate) fn divide(
        &mut self,
        sharing: &mut dyn Sharing,
        scratch: &mut Scratch,
    ) -> Option<Nanos> {
        let Scratch { grants, parties } = scratch;
        sharing.share(self.capacity.cpu, &self.claims, grants);
        let lent_before = self.rates.lent_memory;
        let mut rates = Rates {
            reserved: self.reserved,
            memory: self.memory,
            idle_memory: self.idle_memory,
            ..Rates::default()
        };
        for (position, grant) in grants.iter().enumerate() {
            rates.own += grant.own;
            rates.borrowed += grant.borrowed;
            rates.lent += grant.lent;
            let before = &mut self.grants[position];
            if before != grant || self.ends[position] == UNKNOWN {
                let attempt = &mut self.attempts[self.slots[position] as usize];
                attempt.advance(self.now, before);
                *before = *grant;
                self.ends[position] = attempt.end(self.now, grant).unwrap_or(UNKNOWN);
            }
        }
        let lent = lent_memory(self.capacity.memory, self.reserved.memory, self.preemptible_memory);
        if lent > 0 || lent_before > 0 {
            rates.lent_memory = self.lend_memory(lent, parties);
        }
        self.rates = rates;
        self.is_changed = false;
        self.ends.iter().copied().min().filter(|end| *end < UNKNOWN)
    }

    /// Has so much memory be lent; how much is.
    fn lend_memory(&mut self, lent: u64, parties: &mut Vec<(u64, u64, usize)>) -> u64 {
        let Self { slots, attempts, grants, now, .. } = self;
        parties.clear();
        for (position, slot) in slots.iter().enumerate() {
            let attempt = &mut attempts[*slot as usize];
            attempt.advance(*now, &grants[position]);
            attempt.lent_memory = 0;
            let idle = attempt.reserved_memory.map_or(0, |it| it.saturating_sub(attempt.memory));
            if idle > 0 {
                parties.push((idle, idle, position));
            }
        }
        let mut sum = 0;
        divide(lent, parties, |position, share| {
            attempts[slots[position] as usize].lent_memory = share;
            sum += share;
        });
        sum
    }

    /// Appends what attempts use to `samples`, where that has changed.
    pub(crate) fn sample(&mut self, samples: &mut Vec<Sample>) {
        for (position, slot) in self.slots.iter().enumerate() {
            let attempt = &mut self.attempts[*slot as usize];
            let (cpu, memory) = (self.grants[position].total(), attempt.memory);
            if std::mem::replace(&mut attempt.sampled, (cpu, memory)) != (cpu, memory) {
                samples.push(Sample { instance: attempt.instance, cpu, memory });
            }
        }
    }
}

/// Memory that is used again.
#[derive(Default)]
pub(crate) struct Scratch {
    grants: Vec<Grant>,
    parties: Vec<(u64, u64, usize)>,
}
