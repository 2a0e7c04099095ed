//! What Leopard's policies have in common: what is expected of functions, and which workers take them.
//!
//! T. Cao and others, *Making Serverless Pay-For-Use a Reality with Leopard*, NSDI 2025, section 4.3.

use crate::state::Phase;
use crate::{FunctionView, InstanceView, Resources, WorkerView};

/// What an invocation of the function uses on average, by those that have ended. The prior, for a
/// function without a past, is all that is allocated.
pub(crate) fn expected(function: &FunctionView<'_>) -> Resources {
    let allocation = function.settings().allocation;
    let cpu = function.mean_cpu().zip(function.mean_duration()).and_then(|(cpu, duration)| {
        (u128::from(cpu) * 1_000_000).checked_div(u128::from(duration))
    });
    Resources {
        cpu: cpu.map_or(allocation.cpu, |cpu| (cpu as u64).min(allocation.cpu)),
        memory: function.mean_memory().unwrap_or(allocation.memory).min(allocation.memory),
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
/// the next.
pub(crate) fn takes(worker: &WorkerView<'_>, function: &FunctionView<'_>) -> bool {
    let mut serving = worker.members().filter(serves);
    if function.settings().preemptible && worker.is_pressed() && serving.next().is_some() {
        return false;
    }
    let capacity = worker.capacity().resources;
    if !is_unreserved(function) || capacity == Resources::UNBOUNDED {
        return true;
    }
    let next = expected(function);
    let (mut used, mut all) = (next, next);
    for instance in worker.members().filter(serves) {
        let expected = expected(&instance.function());
        // What has not been sampled yet has only just begun.
        let sample = instance.used();
        used += if sample == Resources::ZERO { expected } else { sample };
        all += expected;
    }
    let percent = |cpu: u64, percent: u32| u128::from(cpu) * u128::from(percent);
    used.fits(capacity)
        && all.memory <= capacity.memory
        && percent(all.cpu, 100) < percent(capacity.cpu, worker.parameters().cpu_overcommit)
}

/// Whether it serves, or will as soon as it is ready.
fn serves(instance: &InstanceView<'_>) -> bool {
    matches!(instance.phase(), Phase::Starting | Phase::Active | Phase::Preempting)
}

/// What remains to be done on the worker: of each invocation that it serves or is being started for, the
/// mean duration times what `of` says that it takes of the worker, in millionths.
pub(crate) fn load(worker: &WorkerView<'_>, of: impl Fn(&FunctionView<'_>) -> Resources) -> u128 {
    let capacity = worker.capacity().resources;
    let weigh = |instance: InstanceView<'_>| {
        let function = instance.function();
        let duration = u128::from(function.mean_duration().unwrap_or(0));
        duration * u128::from(share(of(&function), capacity))
    };
    worker.members().filter(serves).map(weigh).sum()
}

/// The sum of the shares of a worker's CPU and memory, in millionths.
fn share(of: Resources, capacity: Resources) -> u64 {
    millionths(of.cpu, capacity.cpu) + millionths(of.memory, capacity.memory)
}

/// `part / whole` in millionths; at most one whole.
pub(crate) fn millionths(part: u64, whole: u64) -> u64 {
    let parts = u128::from(part) * 1_000_000;
    parts.checked_div(u128::from(whole)).map_or(0, |parts| parts.min(1_000_000) as u64)
}
