//! What a scheduler decides.

use crate::{CpuSet, FunctionId, InstanceId, Nanos, Pause, RequestId, WorkerId};

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// As many requests of the function are in flight as it may have.
    FunctionLimit,
    /// As many requests are in flight as the workers take.
    WorkerLimit,
    /// No worker is large enough for an instance of the function.
    TooLarge,
    /// The instance that was started for the request failed to start.
    StartFailed(InstanceId),
    /// The function does not exist (any more).
    NoFunction,
    /// The scheduler is shutting down.
    ShuttingDown,
}

/// Why an instance is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It idled for as long as it may.
    KeepAlive,
    /// The scaling has more instances than it wants.
    ScaledDown,
    /// Its room was needed, by another instance or under memory pressure.
    Evicted,
    /// It was to be preempted, and answered first.
    Preempted,
    /// Its function was updated.
    Update,
    /// Its function was deleted.
    Delete,
    /// Its worker takes no instances any more.
    Drained,
    /// The scheduler shuts down.
    Shutdown,
}

/// How an instance's threads compete for CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CpuClass {
    /// Before spot threads, on what is reserved for it.
    Reserved,
    /// On what reserved threads leave.
    Spot,
}

/// What an instance's threads run on. CPUs are numbered from 0 on each worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CpuAssignment {
    /// Any CPU, in this class.
    Class {
        /// Which class.
        class: CpuClass,
        /// Its weight among its class, in micro-vCPU.
        weight: u64,
        /// Whole CPUs that are reserved for it alone; none where its reservation is no whole number.
        own: CpuSet,
    },
    /// These CPUs alone.
    Cpus {
        /// Which CPUs.
        cpus: CpuSet,
        /// Whether no other has them.
        are_own: bool,
        /// Its weight among those who run there too, in micro-vCPU; None as the driver started it.
        weight: Option<u64>,
    },
    /// Any CPU, with this weight among all, in micro-vCPU.
    Weight(u64),
}

/// What is to be done, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Start an instance; report [`Event::InstanceReady`](crate::Event::InstanceReady) or
    /// [`Event::InstanceFailed`](crate::Event::InstanceFailed).
    Start {
        /// Its name.
        instance: InstanceId,
        /// What it is an instance of.
        function: FunctionId,
        /// Where it starts.
        worker: WorkerId,
    },
    /// Give the request to the instance, after undoing this pause; report
    /// [`Event::InvocationEnded`](crate::Event::InvocationEnded) or
    /// [`Event::Undelivered`](crate::Event::Undelivered).
    Assign {
        /// Which request.
        request: RequestId,
        /// Who serves it.
        instance: InstanceId,
        /// The pause to undo first.
        resume: Option<Pause>,
    },
    /// Turn the request away.
    Reject {
        /// Which request.
        request: RequestId,
        /// Why.
        reason: Rejection,
    },
    /// Pause the instance, which is idle. Nothing is reported.
    Pause {
        /// Which instance.
        instance: InstanceId,
        /// In which way.
        how: Pause,
    },
    /// From now on until it is given a request, or released, what the instance idles is on the account of
    /// hints. Nothing is reported.
    Hold {
        /// Which instance.
        instance: InstanceId,
    },
    /// From now on what the instance, which is idle and was held, idles is on no hint's account. Nothing is
    /// reported.
    Release {
        /// Which instance.
        instance: InstanceId,
    },
    /// Stop the instance, which is idle or was started for a hint that nothing waits for; report [`Event::InstanceGone`](crate::Event::InstanceGone).
    Stop {
        /// Which instance.
        instance: InstanceId,
        /// Why.
        reason: StopReason,
    },
    /// Stop the instance, which serves. For each request that it serves report
    /// [`Event::InvocationEnded`](crate::Event::InvocationEnded) with
    /// [`End::Preempted`](crate::End::Preempted), or with another end if that came first.
    Preempt {
        /// Which instance.
        instance: InstanceId,
    },
    /// Have the instance's threads run on these CPUs. Nothing is reported.
    SetCpu {
        /// Which instance.
        instance: InstanceId,
        /// What its threads run on.
        assignment: CpuAssignment,
    },
    /// Send [`Event::Wake`](crate::Event::Wake) at this time. Replaces the time of the last such
    /// decision.
    WakeAt(Nanos),
}
