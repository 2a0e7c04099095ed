//! What reaches the owner, and what an instance's task is ordered to do.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::oneshot;
use uncia_clock::Moment;
use uncia_policy::{
    Capacity, Counts, CpuAssignment, Event, FunctionId, InstanceId, Pause, RequestId, StopReason,
    WorkerId,
};
use uncia_record::Instance as InstanceRow;

use super::events::QueuedEvent;
use super::{Completion, GivenHint, Submission};
use crate::function::Function;
use crate::instance::{InUse, Phase, Reply, Request, StartError};

/// To the owner.
pub(super) enum Message {
    /// The function exists, or has changed.
    Configure(Arc<Function>),
    Delete(Arc<Function>),
    /// A request whose answer is waited for.
    Submit(Box<Submission>, oneshot::Sender<Completion>),
    /// An accepted event, which is in the log.
    Accept(Box<QueuedEvent>),
    /// What an accepted event of the function says of those to come.
    Hint(FunctionId, GivenHint),
    /// An instance can serve.
    Ready {
        instance: InstanceId,
        phases: Vec<Phase>,
        /// Whether a runtime that had been started before was reused.
        restored: bool,
        initialization_ns: i64,
        cgroup: Option<String>,
    },
    /// An instance did not become ready, and nothing of it is left.
    Failed(Box<FailedStart>),
    /// An instance is done with a request.
    Served(Box<Served>),
    /// Nothing of an instance is left, and its task has ended.
    Ended {
        instance: InstanceId,
        reason: &'static str,
        idle_cpu: Option<i64>,
    },
    /// A worker takes instances from now on.
    WorkerJoined {
        worker: WorkerId,
        capacity: Capacity,
    },
    /// A worker takes no more; answered when nothing of its instances is left, and it is forgotten.
    WorkerLeaves(WorkerId, oneshot::Sender<()>),
    /// What instances on this machine use now.
    InUse(Box<InUse>),
    /// An event for the scheduler alone.
    NotifyScheduler(Event),
    Counts(oneshot::Sender<Counts>),
    Overview(oneshot::Sender<Overview>),
    /// The rows of the instances that live, of one function or all.
    Living(Option<String>, oneshot::Sender<Vec<InstanceRow>>),
    /// How many instances of a function are ready.
    Readiness(FunctionId, oneshot::Sender<Readiness>),
    /// Let nothing in any more; answered when the last instance is gone.
    ShutDown(oneshot::Sender<()>),
    /// Instances are killed from now on: what they served was not theirs to end.
    Close,
    /// End; answered when every request has been.
    Finish(oneshot::Sender<()>),
}

/// How far a function is with the instances that it is to have ready.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// Instances that have started and are not ordered to end.
    pub instances: usize,
    /// Why its last start failed, if no later one succeeded.
    pub start_error: Option<String>,
}

/// What all instances and requests do at a moment.
#[derive(Debug, Default)]
pub(crate) struct Overview {
    pub counts: Counts,
    /// Of each function and each of its versions, in no order; also of deleted ones of which something
    /// is left.
    pub functions: Vec<(Arc<Function>, Counts)>,
    /// Events that were accepted and dropped, since their function was deleted.
    pub events_dropped: usize,
}

/// A start that failed.
pub(super) struct FailedStart {
    pub instance: InstanceId,
    pub error: StartError,
    pub phases: Vec<Phase>,
    pub restored: bool,
    pub initialization_ns: i64,
    pub log_tail: Bytes,
}

/// What became of a request that an instance was given.
pub(super) struct Served {
    pub instance: InstanceId,
    pub request: RequestId,
    pub result: ServeResult,
    pub idle_cpu: Option<i64>,
}

pub(super) enum ServeResult {
    /// The runtime was given the request.
    Replied {
        reply: Box<Reply>,
        resume: Option<Resume>,
        /// It was stopped for another's sake.
        preempted: Option<Preemption>,
    },
    /// The instance was gone before it was given the request.
    Undelivered {
        /// It was stopped for another's sake, which is no failure.
        preempted: bool,
    },
    /// The payload could not be read, or (None) is not in the log any more; the instance is as it was.
    NoPayload(Option<String>),
}

/// A pause that was undone for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Resume {
    pub pause: Pause,
    pub start: Moment,
    pub end: Moment,
}

/// Why an instance is stopped while it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preemption {
    /// Another request needs its room.
    Room,
    /// Instances use more memory than there is.
    Memory,
}

/// To an instance's task.
pub(super) enum Order {
    /// After undoing the pause, if it is paused.
    Serve(Box<Work>),
    Pause(Pause),
    Stop(StopReason),
    /// Stop at once, whatever it serves.
    Preempt(Preemption),
    SetCpu(CpuAssignment),
}

/// A request as an instance gets it.
pub(super) struct Work {
    pub id: RequestId,
    /// Its payload is empty if it is `stored`.
    pub request: Request,
    /// The event in the log that holds the payload.
    pub stored: Option<i64>,
}
