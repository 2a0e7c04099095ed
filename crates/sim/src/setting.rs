//! What is simulated.

use std::collections::BTreeMap;

use uncia_policy::{FunctionSettings, Hint, Nanos, Parameters, PolicyNames, Rejection, Resources};

use crate::totals::Integral;

/// A stretch of an invocation with the same needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phase {
    /// How long it takes on an idle machine with enough CPUs.
    pub duration: Nanos,
    /// What its threads use then, in micro-vCPU; 0 sleeps.
    pub cpu: u64,
    /// Bytes held.
    pub memory: u64,
}

/// A request and what it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Invocation {
    /// When it arrives.
    pub arrival: Nanos,
    /// Its first phase in [`Trace::phases`].
    pub first_phase: usize,
    /// The position of its function in [`Setting::functions`].
    pub function: u32,
    /// How many phases there are; none takes no time.
    pub phases: u32,
}

/// Invocations in the order of their arrivals, and the phases of all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The invocations.
    pub invocations: Vec<Invocation>,
    /// Their phases.
    pub phases: Vec<Phase>,
    /// What invocations, by their positions, say of those to come.
    pub hints: BTreeMap<usize, Hint>,
}

impl Trace {
    /// Adds an invocation.
    pub fn push(&mut self, function: usize, arrival: Nanos, phases: &[Phase]) {
        let first_phase = self.phases.len();
        self.phases.extend_from_slice(phases);
        self.invocations.push(Invocation {
            arrival,
            first_phase,
            function: function.try_into().unwrap_or(u32::MAX),
            phases: phases.len().try_into().expect("less than 2^32 phases"),
        });
    }

    /// The phases of an invocation.
    pub fn phases(&self, invocation: &Invocation) -> &[Phase] {
        &self.phases[invocation.first_phase..][..invocation.phases as usize]
    }

    /// CPU that an invocation needs, micro-vCPU x ns.
    pub fn cpu(&self, invocation: &Invocation) -> Integral {
        let needed = |it: &Phase| Integral::from(it.cpu) * Integral::from(it.duration);
        self.phases(invocation).iter().map(needed).sum()
    }
}

/// A function, known to the scheduler from the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name, for errors.
    pub name: String,
    /// What its owner asks of the policies.
    pub settings: FunctionSettings,
}

/// What is simulated, but for the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Of the policies, and of what is drawn.
    pub seed: u64,
    /// The functions.
    pub functions: Vec<Function>,
    /// CPU and memory of each worker.
    pub workers: Vec<Resources>,
    /// The policies.
    pub policies: PolicyNames,
    /// What is set of them for all functions.
    pub parameters: Parameters,
    /// The rule by which cores are shared, see [`uncia_policy::sharing`].
    pub sharing: String,
    /// How long a start takes: each is one of these, equally likely.
    pub starts: Vec<Nanos>,
    /// When the simulation ends though not all has; None goes on until all has.
    pub until: Option<Nanos>,
    /// How often workers give account; None does so at the end alone.
    pub interval: Option<Nanos>,
    /// How long a request takes from its arrival until the policies know of it.
    pub latency: Nanos,
    /// Failures of workers at known times.
    pub failures: Vec<Failure>,
    /// Failures at random: each worker works for an exponential time of the first mean, and is gone for
    /// one of the second.
    pub random_failures: Option<(Nanos, Nanos)>,
}

/// A worker is gone for a while, with all that runs there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Which worker.
    pub worker: usize,
    /// When it goes.
    pub at: Nanos,
    /// For how long. It comes back empty.
    pub lasts: Nanos,
}

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It ran to its end.
    Ok,
    /// It was stopped, and waits again.
    Preempted,
    /// Its worker failed, and it waits again.
    Lost,
    /// It was turned away.
    Rejected(Rejection),
}
