//! What Leopard's policies have in common: what is expected of functions, and which workers take them.
//!
//! T. Cao and others, *Making Serverless Pay-For-Use a Reality with Leopard*, NSDI 2025, section 4.3.

use crate::state::statistics::Statistics;
use crate::{FunctionSettings, FunctionView, Nanos, Resources, WorkerView};

/// What is expected of an invocation of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Expected {
    /// What it uses on average, by those that have ended; all that is allocated where there is no past.
    pub(crate) resources: Resources,
    /// How long it takes on average; zero where there is no past.
    pub(crate) duration: Nanos,
    /// What it has for itself.
    pub(crate) reservation: Resources,
}

impl Expected {
    pub(crate) fn of(settings: &FunctionSettings, past: &Statistics) -> Self {
        let allocation = settings.allocation;
        let cpu = past.mean_cpu().zip(past.mean_duration()).and_then(|(cpu, duration)| {
            match cpu.checked_mul(1_000_000) {
                Some(product) => product.checked_div(duration),
                None => (u128::from(cpu) * 1_000_000)
                    .checked_div(u128::from(duration))
                    .map(|rate| rate as u64),
            }
        });
        Self {
            resources: Resources {
                cpu: cpu.map_or(allocation.cpu, |cpu| cpu.min(allocation.cpu)),
                memory: past.mean_memory().unwrap_or(allocation.memory).min(allocation.memory),
            },
            duration: past.mean_duration().unwrap_or(0),
            reservation: settings.reservation(),
        }
    }
}

/// Whether an invocation of the function has nothing for itself: batch work with preemptible memory and
/// no reserved cores.
pub(crate) fn is_unreserved(function: &FunctionView<'_>) -> bool {
    function.settings().reservation() == Resources::ZERO
}

/// Whether the worker takes one more invocation of the function, if its reservation is free.
///
/// Batch work without one is taken where what is idle suffices for what is expected of it, where all that
/// is expected of what runs is within the memory, and within the CPUs times `cpu_overcommit` percent. Who
/// can be preempted is not taken from when somebody was until an invocation has ended there: it would be
/// the next. Nobody is taken whose memory may grow beyond the worker's.
pub(crate) fn takes(worker: &WorkerView<'_>, function: &FunctionView<'_>) -> bool {
    let (settings, capacity) = (function.settings(), worker.capacity().resources);
    if settings.allocation.memory > capacity.memory
        || settings.preemptible && worker.is_pressed() && worker.outlook().serving > 0
    {
        return false;
    }
    !is_unreserved(function) || worker.spare().fits(function.expected().resources)
}

/// The sum of the shares of a worker's CPU and memory, in millionths.
pub(crate) fn share(of: Resources, capacity: Resources) -> u64 {
    millionths(of.cpu, capacity.cpu) + millionths(of.memory, capacity.memory)
}

/// `part / whole` in millionths; at most one whole.
pub(crate) fn millionths(part: u64, whole: u64) -> u64 {
    let parts = match part.checked_mul(1_000_000) {
        Some(parts) => parts.checked_div(whole),
        None => (u128::from(part) * 1_000_000)
            .checked_div(whole.into())
            .map(|it| it.min(1_000_000) as u64),
    };
    parts.map_or(0, |parts| parts.min(1_000_000))
}
