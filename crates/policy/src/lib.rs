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
mod decision;
mod event;
mod evict;
mod ids;
mod keep_alive;
mod policies;
mod reuse;
mod scale;
mod scheduler;
mod settings;
mod timers;

pub use admission::{Admission, ConcurrencyLimits, Load};
pub use bind::{Binding, EarlyBinding, LateBinding};
pub use budget::{Budget, Verdict};
pub use evict::{Eviction, LeastRecentlyUsed};
pub use keep_alive::{FixedKeepAlive, Retention, Schedule};
pub use policies::{Policies, PolicyNames, UnknownPolicy};
pub use reuse::{MostRecentlyUsed, Reuse};
pub use scale::{Demand, OnePerRequest, Scaling};
pub use scheduler::{Counts, Scheduler};

pub use decision::{CpuAssignment, CpuClass, Decision, Rejection, StopReason};
pub use event::{End, Event};
pub use ids::{FunctionId, InstanceId, Nanos, RequestId, WorkerId};
pub use settings::{Capacity, CpuSet, FunctionSettings, Pause, Qos, Resources, Usage};

/// An instance that serves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    pub instance: InstanceId,
    pub since: Nanos,
    /// What was done to it, if anything.
    pub paused: Option<Pause>,
}
