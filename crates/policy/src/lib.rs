//! When to start, reuse, pause and remove instances, and whom to turn away: decisions without I/O
//! and without a clock.
//!
//! A [`Scheduler`] is told what happened ([`Event`]) and when, and says what to do ([`Decision`]).
//! Whoever drives it (the worker with the real clock, a simulator with a virtual one) carries the
//! decisions out and reports back. The scheduler keeps the books: which instance does what, who
//! waits, which timer is next. The choices that one may want to make differently are small traits,
//! one file each: [`Admission`], [`Scaling`], [`Binding`], [`Reuse`], [`Retention`], [`Eviction`].
//!
//! A [`Budget`] decides in the same manner when an instance has used its share of a CPU.

mod admission;
mod bind;
mod budget;
mod evict;
mod keep_alive;
mod reuse;
mod scale;
mod scheduler;
mod timers;

pub use admission::{Admission, ConcurrencyLimits, Load};
pub use bind::{Binding, EarlyBinding, LateBinding};
pub use budget::{Budget, Verdict};
pub use evict::{Eviction, LeastRecentlyUsed};
pub use keep_alive::{FixedKeepAlive, Retention, Schedule};
pub use reuse::{MostRecentlyUsed, Reuse};
pub use scale::{Demand, OnePerRequest, Scaling};
pub use scheduler::{Counts, Policies, Scheduler};

/// Nanoseconds since whatever moment the driver counts from; never goes back.
pub type Nanos = u64;

/// Names a function; chosen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u64);

/// Names a request; chosen by the driver, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Names an instance; chosen by the scheduler, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub u64);

/// What a function's owner asks of the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionSettings {
    /// How long an instance may idle before it is removed.
    pub keep_alive: Nanos,
    /// How long an instance may idle before it is paused.
    pub pause_after: Nanos,
    /// How it is paused then; None lets it run as usual for as long as it is kept.
    pub pause: Option<Pause>,
    /// Requests of this function that may be in flight at once; 0 turns every request away.
    pub max_instances: u32,
}

/// How an instance that idles is kept from working at its owner's or the platform's expense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pause {
    /// Nothing of it runs.
    Freeze,
    /// It runs on with next to no CPU.
    ScaleDown,
}

/// An instance that serves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    pub instance: InstanceId,
    pub since: Nanos,
    /// What was done to it, if anything.
    pub paused: Option<Pause>,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The function exists from now on, or has other settings; its instances stay.
    FunctionConfigured { function: FunctionId, settings: FunctionSettings },
    /// The function's code or configuration changed: its instances are of the past.
    FunctionUpdated { function: FunctionId },
    /// The function is gone; requests that were let in are still served.
    FunctionDeleted { function: FunctionId },
    /// A request came in.
    Arrival { request: RequestId, function: FunctionId },
    /// An instance that was started waits for its first request.
    InstanceReady { instance: InstanceId },
    /// An instance that was started never became ready, and nothing is left of it.
    InstanceFailed { instance: InstanceId },
    /// An instance has answered; unless it survives, nothing is left of it.
    InvocationDone { instance: InstanceId, survives: bool },
    /// The assigned instance was gone before it was given the request, which did not run.
    Undelivered { request: RequestId, instance: InstanceId },
    /// An instance that served nothing ended by itself, or one that was to be stopped has ended.
    InstanceGone { instance: InstanceId },
    /// It is time to look at the clock, see [`Decision::WakeAt`].
    Wake,
    /// Let nothing in any more, and stop what serves nothing.
    Shutdown,
}

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// As many requests of the function are in flight as it may have.
    FunctionLimit,
    /// As many requests are in flight as the worker takes.
    WorkerLimit,
    /// The instance that was started for the request failed to start.
    StartFailed(InstanceId),
    /// The function does not exist (any more).
    NoFunction,
    /// The worker is shutting down.
    ShuttingDown,
}

/// Why an instance is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It idled for as long as it may.
    KeepAlive,
    /// Its place was needed by another function.
    Evicted,
    /// Its function was updated.
    Update,
    /// Its function was deleted.
    Delete,
    /// The worker shuts down.
    Shutdown,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Start an instance; report [`Event::InstanceReady`] or [`Event::InstanceFailed`].
    Start { instance: InstanceId, function: FunctionId },
    /// Give the request to the instance, after undoing this pause; report
    /// [`Event::InvocationDone`] or [`Event::Undelivered`].
    Assign { request: RequestId, instance: InstanceId, resume: Option<Pause> },
    /// Turn the request away.
    Reject { request: RequestId, reason: Rejection },
    /// Pause the instance, which is idle. Nothing is reported.
    Pause { instance: InstanceId, how: Pause },
    /// Stop the instance, which is idle; report [`Event::InstanceGone`].
    Stop { instance: InstanceId, reason: StopReason },
    /// Send [`Event::Wake`] at this time. Replaces the time of the last such decision.
    WakeAt(Nanos),
}
