//! A worker: what runs on it, at which rates, and what it has used.

use uncia_policy::sharing::{Claim, Grant, Sharing, divide, time_for};
use uncia_policy::{FunctionSettings, InstanceId, Nanos, Resources};

use crate::setting::Phase;
use crate::totals::{Integral, Totals};

/// What an attempt has used: micro-vCPU x ns, bytes x ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meter {
    /// CPU of its own reservation.
    pub cpu_own: Integral,
    /// CPU beyond that.
    pub cpu_borrowed: Integral,
    /// CPU of its reservation that others used.
    pub cpu_lent: Integral,
    /// Memory that it used.
    pub memory: Integral,
    /// Memory that was reserved for it and used by others.
    pub memory_lent: Integral,
    /// The most bytes that it used.
    pub memory_peak: u64,
}

impl Meter {
    /// CPU that it used.
    pub fn cpu(&self) -> Integral {
        self.cpu_own + self.cpu_borrowed
    }
}

/// An attempt that runs.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) invocation: usize,
    pub(crate) instance: InstanceId,
    pub(crate) attempt: u32,
    pub(crate) arrived: Nanos,
    pub(crate) initialization: Option<Nanos>,
    pub(crate) started: Nanos,
    /// Positions of the phase after the current one, and after its last.
    pub(crate) next_phase: usize,
    pub(crate) last_phase: usize,
    pub(crate) meter: Meter,
    /// Bytes that it uses.
    pub(crate) memory: u64,
    /// What the scheduler was last told that it uses.
    pub(crate) sampled: (u64, u64),
    /// CPU x ns until the phase ends, or ns if it sleeps.
    left: u128,
    claim: Claim,
    grant: Grant,
    /// Bytes that are reserved for it; None if its memory may be taken.
    reserved_memory: Option<u64>,
    lent_memory: u64,
}

impl Running {
    /// One whose first phase begins, or that has none.
    pub(crate) fn new(
        settings: &FunctionSettings,
        invocation: usize,
        instance: InstanceId,
        phases: std::ops::Range<usize>,
    ) -> Self {
        Self {
            invocation,
            instance,
            attempt: 1,
            arrived: 0,
            initialization: None,
            started: 0,
            next_phase: phases.start,
            last_phase: phases.end,
            meter: Meter::default(),
            memory: 0,
            sampled: (0, 0),
            left: 0,
            claim: Claim {
                demand: 0,
                cap: settings.allocation.cpu,
                reserved: settings.reservation().cpu,
            },
            grant: Grant::default(),
            reserved_memory: (!settings.preemptible).then_some(settings.allocation.memory),
            lent_memory: 0,
        }
    }

    /// Begins the next phase; false if there is none.
    pub(crate) fn enter_next(&mut self, phases: &[Phase]) -> bool {
        if self.next_phase == self.last_phase {
            return false;
        }
        let phase = &phases[self.next_phase];
        self.next_phase += 1;
        self.claim.demand = phase.cpu;
        self.left = u128::from(phase.duration) * u128::from(phase.cpu.max(1));
        self.memory = phase.memory;
        self.meter.memory_peak = self.meter.memory_peak.max(phase.memory);
        true
    }

    /// Micro-vCPU that it runs on.
    pub(crate) fn rate(&self) -> u64 {
        self.grant.total()
    }

    /// By how much less is left of its phase after each nanosecond.
    fn progress(&self) -> u64 {
        if self.claim.demand == 0 { 1 } else { self.rate() }
    }

    /// Whether its phase has ended.
    pub(crate) fn is_due(&self) -> bool {
        self.left == 0
    }

    fn advance(&mut self, time: Nanos) {
        let time = Integral::from(time);
        let over = |rate: u64| Integral::from(rate) * time;
        let meter = &mut self.meter;
        meter.cpu_own += over(self.grant.own);
        meter.cpu_borrowed += over(self.grant.borrowed);
        meter.cpu_lent += over(self.grant.lent);
        meter.memory += over(self.memory);
        meter.memory_lent += over(self.lent_memory);
        self.left = self.left.saturating_sub(over(self.progress()));
    }
}

/// What is constant between two changes on a worker, in micro-vCPU and bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    reserved: Resources,
    own: u64,
    borrowed: u64,
    lent: u64,
    memory: u64,
    lent_memory: u64,
}

pub(crate) struct Worker {
    pub(crate) capacity: Resources,
    pub(crate) running: Vec<Running>,
    /// Bytes that its idle instances hold.
    pub(crate) idle_memory: u64,
    /// How often what runs has changed.
    pub(crate) change: u64,
    /// Whether it has since the cores were divided.
    pub(crate) is_changed: bool,
    pub(crate) totals: Totals,
    /// Up to when all is accounted for.
    now: Nanos,
    rates: Rates,
}

impl Worker {
    pub(crate) fn new(capacity: Resources) -> Self {
        Self {
            capacity,
            running: Vec::new(),
            idle_memory: 0,
            change: 0,
            is_changed: false,
            totals: Totals::default(),
            now: 0,
            rates: Rates::default(),
        }
    }

    /// Accounts for the time up to `now`, in which nothing has changed.
    pub(crate) fn advance(&mut self, now: Nanos) {
        let time = now - self.now;
        if time == 0 {
            return;
        }
        self.now = now;
        for running in &mut self.running {
            running.advance(time);
        }
        let (rates, span) = (&self.rates, Integral::from(time));
        let over = |rate: u64| Integral::from(rate) * span;
        self.totals = self.totals
            + Totals {
                cpu_reserved: over(rates.reserved.cpu),
                cpu_own: over(rates.own),
                cpu_borrowed: over(rates.borrowed),
                cpu_lent: over(rates.lent),
                memory_reserved: over(rates.reserved.memory),
                memory_used: over(rates.memory),
                memory_idle: over(self.idle_memory),
                memory_lent: over(rates.lent_memory),
                ..Totals::of_capacity(self.capacity, time)
            };
    }

    /// Bytes that are used beyond those that there are.
    pub(crate) fn excess(&self) -> u64 {
        let running: u64 = self.running.iter().map(|running| running.memory).sum();
        (running + self.idle_memory).saturating_sub(self.capacity.memory)
    }

    /// Divides cores and memory anew; in how long the first phase ends then, if one does.
    pub(crate) fn divide(
        &mut self,
        sharing: &mut dyn Sharing,
        scratch: &mut Scratch,
    ) -> Option<Nanos> {
        let Scratch { claims, grants, parties } = scratch;
        claims.clear();
        claims.extend(self.running.iter().map(|running| running.claim));
        sharing.share(self.capacity.cpu, claims, grants);
        let mut rates = Rates::default();
        let mut preemptible = 0;
        for (running, grant) in self.running.iter_mut().zip(grants.iter()) {
            running.grant = *grant;
            running.lent_memory = 0;
            rates.own += grant.own;
            rates.borrowed += grant.borrowed;
            rates.lent += grant.lent;
            rates.memory += running.memory;
            rates.reserved.cpu += running.claim.reserved;
            match running.reserved_memory {
                Some(reserved) => rates.reserved.memory += reserved,
                None => preemptible += running.memory,
            }
        }
        // What preemptible invocations use beyond the memory that is nobody's is lent by those who have
        // more reserved than they use, each in proportion to that.
        let unreserved = self.capacity.memory.saturating_sub(rates.reserved.memory);
        let lent = preemptible.saturating_sub(unreserved);
        if lent > 0 {
            parties.clear();
            for (index, running) in self.running.iter().enumerate() {
                let idle =
                    running.reserved_memory.map_or(0, |it| it.saturating_sub(running.memory));
                if idle > 0 {
                    parties.push((idle, idle, index));
                }
            }
            divide(lent, parties, |index, share| {
                self.running[index].lent_memory = share;
                rates.lent_memory += share;
            });
        }
        self.rates = rates;
        self.change += 1;
        self.is_changed = false;
        self.running.iter().filter_map(|running| time_for(running.left, running.progress())).min()
    }
}

/// Memory that is used again.
#[derive(Default)]
pub(crate) struct Scratch {
    claims: Vec<Claim>,
    grants: Vec<Grant>,
    parties: Vec<(u64, u64, usize)>,
}
