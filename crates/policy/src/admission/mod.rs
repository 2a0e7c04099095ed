//! Whether a request is let in now: one file per policy.

use crate::{FunctionId, FunctionView, Nanos, Random, Rejection, RequestId, View, WorkerId};

include!(concat!(env!("OUT_DIR"), "/admission.rs"));

/// A request that asks to be admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which request.
    pub request: RequestId,
    /// The function it is for.
    pub function: FunctionId,
    /// When it arrived.
    pub arrived: Nanos,
    /// Whether whoever sent it expects it to wait rather than to be rejected. A policy may have
    /// others wait, too.
    pub can_wait: bool,
}

/// What a request waits for, and with that, when admission is asked again. Of requests that wait
/// for the same, only the first is asked, so that none overtakes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WaitFor {
    /// For a request of its own function to end.
    Function,
    /// For any request to end, or for room on a worker.
    Cluster,
    /// For the same, in a queue of its class ([`Qos`](crate::Qos)): the first of each class is
    /// asked, interactive before batch.
    Class,
}

/// What admission decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// It is let in.
    Admit,
    /// It is not yet.
    Wait(WaitFor),
    /// It is turned away.
    Reject(Rejection),
    /// It waits in the queue of its class, and active instances on this worker are preempted until
    /// there is room for an instance of its function.
    Preempt(WorkerId),
}

/// Decides whether a request is let in.
pub trait Admission: Send {
    /// Whether instances take up of a worker's capacity what is reserved for them alone, so that what is
    /// spot or preemptible is let in beyond it. All that is allocated counts otherwise.
    fn reserves_only(&self) -> bool {
        false
    }

    /// Whether it reads what instances use by their samples.
    fn reads_samples(&self) -> bool {
        false
    }

    /// Rules on a request of the function that arrives, or that is first among those that wait.
    fn admit(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        function: &FunctionView<'_>,
        request: &Candidate,
    ) -> Ruling;
}
