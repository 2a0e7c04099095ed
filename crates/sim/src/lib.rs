//! A cluster that serves functions, in virtual time: workers with cores and memory, instances that start
//! and are kept, requests that wait, run phase by phase, and are preempted.
//!
//! What is decided is decided by [`uncia_policy::Scheduler`], the one that the embedded platform has:
//! the simulator is another driver of it. Here is what a machine does: time, cores and memory.
//!
//! # Model
//!
//! An invocation is a list of [`Phase`]s. A phase has threads that want so many CPUs and holds so much
//! memory. It has run once its threads have had as much CPU time as they would have used in its
//! duration on an idle machine; one without threads sleeps for its duration. While what is on a worker
//! does not change, everybody runs at a constant rate, which the rule of [`uncia_policy::sharing`]
//! gives; each change divides the cores anew at once.
//!
//! Times are whole nanoseconds, CPU is whole micro-vCPU, memory whole bytes. Integrals (micro-vCPU x ns,
//! bytes x ns) are exact integers, so that nothing is lost between what workers have and what
//! invocations use. A phase ends at a whole nanosecond: the CPU time it has had is what it needs, or up
//! to one nanosecond of its rate more.
//!
//! An instance holds what its last phase held while it idles. A start takes its time, and neither CPU
//! nor memory. A request is known to the policies a fixed time after it arrived; decisions take no time
//! and are carried out at once. A worker that fails is gone with all that runs there, which begins again
//! elsewhere, and comes back empty.

#![forbid(unsafe_code)]

mod check;
mod engine;
mod events;
mod running;
mod setting;
mod totals;
mod worker;

pub use check::SettingError;
pub use engine::{Failed, Summary, simulate};
pub use running::Meter;
pub use setting::{Failure, Function, Invocation, Outcome, Phase, Setting, Trace};
pub use totals::{Integral, Totals};

use uncia_policy::Nanos;

/// What the simulation tells of while it goes on.
pub trait Sink {
    /// Why a row cannot be taken.
    type Error;

    /// An attempt to serve an invocation has ended, or was turned away.
    fn served(&mut self, served: &Served) -> Result<(), Self::Error>;

    /// An instance is gone, or the simulation ended while it was there.
    fn instance(&mut self, life: &Life) -> Result<(), Self::Error>;

    /// A worker's account of the time since the last one.
    fn interval(&mut self, interval: &Interval) -> Result<(), Self::Error>;
}

/// An attempt to serve an invocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Its position in the trace.
    pub invocation: usize,
    /// 1 for the first attempt, one more after each preemption.
    pub attempt: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// When the attempt began to wait: the arrival, or the preemption of the attempt before.
    pub arrived: Nanos,
    /// How it ran; None if it was turned away.
    pub run: Option<Run>,
}

/// How an attempt ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The number of its instance, in the order of starts, from 0.
    pub instance: usize,
    /// A small number that no other instance has as long as this one is there.
    pub slot: usize,
    /// Where that is.
    pub worker: usize,
    /// How long the start of the instance took, if it was the instance's first request.
    pub initialization: Option<Nanos>,
    /// When its first phase began.
    pub started: Nanos,
    /// When its last phase ended, or it was stopped.
    pub ended: Nanos,
    /// What it used.
    pub meter: Meter,
}

/// Why an instance is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It was stopped.
    Stopped(uncia_policy::StopReason),
    /// Its worker failed.
    WorkerFailed,
}

/// The life of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Its number, in the order of starts, from 0.
    pub instance: usize,
    /// The function that it ran.
    pub function: usize,
    /// Where.
    pub worker: usize,
    /// When its start began.
    pub started: Nanos,
    /// When it was ready; None if it never was.
    pub initialized: Option<Nanos>,
    /// When it was gone, and why; None if it was there to the end.
    pub ended: Option<(Nanos, Gone)>,
    /// Requests that it was given.
    pub invocations: u64,
    /// Intervals in which it served nothing.
    pub idle: Vec<(Nanos, Nanos)>,
    /// How long of that it was there on the account of hints.
    pub hint_idle: Nanos,
}

/// What a worker did for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Which worker.
    pub worker: usize,
    /// From when.
    pub start: Nanos,
    /// To when.
    pub end: Nanos,
    /// Integrals over this time.
    pub totals: Totals,
}
