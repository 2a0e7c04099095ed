//! Decisions about requests and instances, without I/O and without a clock: whom to admit, what to
//! start and where, what to reuse, pause, evict and preempt.
//!
//! A [`Scheduler`] takes events ([`Event`]) with their time and returns decisions ([`Decision`]).
//! A driver (the worker with the real clock, a simulator with a virtual one) carries them out and
//! reports back. The scheduler keeps the state: what each instance does, which requests wait, which
//! timer is next. What can be decided in more than one way is a small trait with a folder of its
//! own, and in it a file per policy, found by the file's name: [`admission`], [`order`],
//! [`scaling`], [`connection`], [`binding`], [`placement`], [`reuse`], [`retention`], [`eviction`], [`cpu`].
//! [`Policies::from_names`] makes a set of them. All policies read the same [`View`] of the state, with
//! the numbers that are set for all functions ([`Parameters`]), and draw from the same seeded [`Random`] stream, so that the same seed and events give the same
//! decisions.
//!
//! How a worker's cores are shared among what runs there is left to a kernel, or to a model of one:
//! [`sharing`], again a file per rule.
//!
//! A [`Budget`] decides in the same manner when an instance has used its share of a CPU.

#![forbid(unsafe_code)]

pub mod admission;
pub mod binding;
mod budget;
pub mod connection;
mod cores;
pub mod cpu;
mod decision;
mod event;
pub mod eviction;
mod hint;
mod ids;
mod leopard;
pub mod order;
mod parameters;
pub mod placement;
mod policies;
pub mod retention;
pub mod reuse;
pub mod scaling;
mod scheduler;
mod settings;
pub mod sharing;
mod state;
mod view;

pub use budget::{Budget, Verdict};
pub use decision::{CpuAssignment, CpuClass, Decision, Rejection, StopReason};
pub use event::{End, Event, Sample};
pub use hint::{Hint, HintAnswer};
pub use ids::{FunctionId, InstanceId, Nanos, RequestId, WorkerId};
pub use parameters::Parameters;
pub use policies::{Choice, Policies, PolicyNames, UnknownPolicy};
pub use scheduler::Scheduler;
pub use settings::{Capacity, CpuSet, FunctionSettings, Pause, Qos, Resources, Usage};
pub use state::{Counts, Phase, Volume, most_kept};
pub use view::{FunctionView, InstanceView, View, WorkerView};

/// The stream from which policies draw, seeded by [`Scheduler::new`].
pub type Random = rand_chacha::ChaCha8Rng;
