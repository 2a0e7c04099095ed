//! An attempt that runs: how far it is, and what it has used.

use uncia_policy::sharing::{Grant, time_for};
use uncia_policy::{FunctionSettings, InstanceId, Nanos};

use crate::setting::Phase;
use crate::totals::Integral;

/// What an attempt has used: micro-vCPU x ns, bytes x ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
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

    /// Of both together; the peak is that of the one which used more.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            cpu_own: self.cpu_own + other.cpu_own,
            cpu_borrowed: self.cpu_borrowed + other.cpu_borrowed,
            cpu_lent: self.cpu_lent + other.cpu_lent,
            memory: self.memory + other.memory,
            memory_lent: self.memory_lent + other.memory_lent,
            memory_peak: self.memory_peak.max(other.memory_peak),
        }
    }
}

/// An attempt that runs. Everything it has used is accounted for up to `since`: from then on it has
/// run at the same rates.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    pub(crate) invocation: usize,
    pub(crate) instance: InstanceId,
    pub(crate) attempt: u32,
    pub(crate) arrived: Nanos,
    pub(crate) initialization: Option<Nanos>,
    pub(crate) started: Nanos,
    pub(crate) meter: Meter,
    /// Bytes that it uses.
    pub(crate) memory: u64,
    /// Bytes that are reserved for it; None if its memory may be taken.
    pub(crate) reserved_memory: Option<u64>,
    /// Of these, bytes that others use.
    pub(crate) lent_memory: u64,
    /// What the scheduler was last told that it uses, of CPU and memory.
    pub(crate) sampled: (u64, u64),
    /// Positions of the phase after the current one, and after its last.
    next_phase: usize,
    last_phase: usize,
    /// CPU x ns until the phase ends, or ns if it sleeps.
    left: u128,
    is_asleep: bool,
    since: Nanos,
}

impl Running {
    /// One that begins now, before its first phase.
    pub(crate) fn new(
        settings: &FunctionSettings,
        invocation: usize,
        instance: InstanceId,
        phases: std::ops::Range<usize>,
        now: Nanos,
    ) -> Self {
        Self {
            invocation,
            instance,
            attempt: 1,
            arrived: 0,
            initialization: None,
            started: now,
            meter: Meter::default(),
            memory: 0,
            reserved_memory: (!settings.preemptible).then_some(settings.allocation.memory),
            lent_memory: 0,
            sampled: (0, 0),
            next_phase: phases.start,
            last_phase: phases.end,
            left: 0,
            is_asleep: true,
            since: now,
        }
    }

    /// Begins the next phase, if there is one; the CPU that its threads want then.
    pub(crate) fn enter_next(&mut self, phases: &[Phase]) -> Option<u64> {
        if self.next_phase == self.last_phase {
            return None;
        }
        let phase = &phases[self.next_phase];
        self.next_phase += 1;
        self.is_asleep = phase.cpu == 0;
        self.left = u128::from(phase.duration) * u128::from(phase.cpu.max(1));
        self.memory = phase.memory;
        self.meter.memory_peak = self.meter.memory_peak.max(phase.memory);
        Some(phase.cpu)
    }

    /// By how much less is left of its phase after each nanosecond.
    fn progress(&self, grant: &Grant) -> u64 {
        if self.is_asleep { 1 } else { grant.total() }
    }

    /// Accounts for the time up to `now`, in which it ran at these rates.
    pub(crate) fn advance(&mut self, now: Nanos, grant: &Grant) {
        let time = now - self.since;
        if time == 0 {
            return;
        }
        self.since = now;
        let over = |rate: u64| Integral::from(rate) * Integral::from(time);
        let left = over(self.progress(grant));
        let meter = &mut self.meter;
        meter.cpu_own += over(grant.own);
        meter.cpu_borrowed += over(grant.borrowed);
        meter.cpu_lent += over(grant.lent);
        meter.memory += over(self.memory);
        meter.memory_lent += over(self.lent_memory);
        self.left = self.left.saturating_sub(left);
    }

    /// When its phase ends at these rates, if it does; it is accounted for up to `now`.
    pub(crate) fn end(&self, now: Nanos, grant: &Grant) -> Option<Nanos> {
        time_for(self.left, self.progress(grant)).map(|time| now.saturating_add(time))
    }
}
