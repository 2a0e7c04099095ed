//! What happens to a scheduler.

use crate::{
    Capacity, FunctionId, FunctionSettings, InstanceId, Nanos, RequestId, Usage, WorkerId,
};

/// What becomes of an instance when one of its invocations ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// It answered and may serve more.
    Survives,
    /// The invocation has its answer, and nothing is left of the instance. Further requests that it
    /// served are reported each on its own, or all at once by [`Event::InstanceGone`].
    Gone,
    /// The instance was stopped before the answer; the request is to run again.
    Preempted,
}

/// What an instance uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Which instance.
    pub instance: InstanceId,
    /// In micro-vCPU.
    pub cpu: u64,
    /// In bytes.
    pub memory: u64,
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The worker takes instances from now on, or has another capacity.
    WorkerJoined {
        /// Which worker.
        worker: WorkerId,
        /// What it has room for.
        capacity: Capacity,
    },
    /// The worker takes no instances any more. Those that it has retire: what is idle is stopped at once,
    /// what serves a request, or is being started for one, afterwards.
    WorkerDrained {
        /// Which worker.
        worker: WorkerId,
    },
    /// The worker is gone with all its instances, of which nothing more is reported. Their requests
    /// are requeued as the next attempt.
    WorkerGone {
        /// Which worker.
        worker: WorkerId,
    },
    /// The function exists from now on, or has other settings; its instances stay.
    FunctionConfigured {
        /// Which function.
        function: FunctionId,
        /// What its owner asks for.
        settings: FunctionSettings,
    },
    /// The function's code or configuration changed: its instances are of the past.
    FunctionUpdated {
        /// Which function.
        function: FunctionId,
    },
    /// The function is gone. Requests that were admitted are still served; those that wait to be
    /// are rejected.
    FunctionDeleted {
        /// Which function.
        function: FunctionId,
    },
    /// A request came in.
    Arrival {
        /// Which request.
        request: RequestId,
        /// The function it is for.
        function: FunctionId,
        /// Where it cannot be admitted now it waits (an accepted event); else it is rejected.
        can_wait: bool,
    },
    /// A client has connected to the function's own address, and has asked for nothing yet. Need not be
    /// reported unless [`Scheduler::reads_connections`](crate::Scheduler::reads_connections).
    ConnectionBegan {
        /// Which function.
        function: FunctionId,
    },
    /// Such a connection has asked, which is an arrival of its own, or is over.
    ConnectionSettled {
        /// Which function.
        function: FunctionId,
    },
    /// An instance that was started waits for its first request.
    InstanceReady {
        /// Which instance.
        instance: InstanceId,
        /// How long the start took.
        initialization: Nanos,
    },
    /// An instance that was started never became ready, and nothing is left of it.
    InstanceFailed {
        /// Which instance.
        instance: InstanceId,
    },
    /// An invocation has ended.
    InvocationEnded {
        /// The request that was served.
        request: RequestId,
        /// By which instance.
        instance: InstanceId,
        /// What becomes of the instance.
        end: End,
        /// What the invocation used.
        usage: Usage,
    },
    /// The instance was gone before it was given the request, which did not run and is requeued in
    /// front.
    Undelivered {
        /// Which request.
        request: RequestId,
        /// The instance it was assigned to.
        instance: InstanceId,
    },
    /// Nothing is left of the instance, whatever it did. Requests that it still serves by the
    /// scheduler's account are requeued as if undelivered.
    InstanceGone {
        /// Which instance.
        instance: InstanceId,
    },
    /// What the instance uses now.
    Sampled {
        /// Which instance.
        instance: InstanceId,
        /// In micro-vCPU.
        cpu: u64,
        /// In bytes.
        memory: u64,
    },
    /// The worker is short of memory.
    MemoryPressure {
        /// Which worker.
        worker: WorkerId,
        /// Bytes to be freed.
        bytes: u64,
    },
    /// It is time to look at the clock, see [`Decision::WakeAt`](crate::Decision::WakeAt).
    Wake,
    /// Let nothing in any more, reject what waits to be admitted, and stop what serves nothing.
    Shutdown,
}
