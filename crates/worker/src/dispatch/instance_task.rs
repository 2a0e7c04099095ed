//! The task of an instance: starts it, carries out one order after the other, reports to the owner.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use uncia_clock::Moment;
use uncia_policy::{CpuAssignment, InstanceId, Pause, StopReason, WorkerId};

use super::host::{InstanceHost, Log, RunningInstance, Started};
use super::message::{FailedStart, Message, Order, Preemption, Resume, ServeResult, Served, Work};
use crate::instance::{InstanceSpec, Outcome, Reply, StartError};

/// What the task of an instance needs.
pub(super) struct InstanceTask<H: InstanceHost, L> {
    pub id: InstanceId,
    pub worker: WorkerId,
    pub host: H,
    pub log: Arc<L>,
    pub spec: InstanceSpec,
    pub orders: UnboundedReceiver<Order>,
    pub owner: UnboundedSender<Message>,
    pub stop_grace: Duration,
}

/// Reports the end of a task that ends in any other way than it should, by a panic.
struct EndGuard {
    id: InstanceId,
    owner: UnboundedSender<Message>,
    armed: bool,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        if self.armed {
            let ended = Message::Ended { instance: self.id, reason: "exit", idle_cpu: None };
            // Without an owner, nobody needs to know.
            let _ = self.owner.send(ended);
        }
    }
}

impl<H: InstanceHost, L: Log> InstanceTask<H, L> {
    /// Follows the instance from its start to its end.
    pub(super) async fn run(self) {
        let Self { id, worker, host, log, spec, orders, owner, stop_grace } = self;
        let mut guard = EndGuard { id, owner: owner.clone(), armed: true };
        let Started { result, phases, restored, initialization_ns, log_tail } =
            host.start(worker, spec).await;
        let last = match result {
            Ok(instance) => {
                let cgroup = instance.cgroup();
                report(
                    &owner,
                    Message::Ready { instance: id, phases, restored, initialization_ns, cgroup },
                );
                let mut running = Running {
                    id,
                    instance,
                    log,
                    orders,
                    deferred: VecDeque::new(),
                    owner: owner.clone(),
                    stop_grace,
                    paused: None,
                    postponed: None,
                };
                let reason = running.follow().await;
                Message::Ended { instance: id, reason, idle_cpu: running.instance.idle_cpu() }
            }
            Err(error) => Message::Failed(Box::new(FailedStart {
                instance: id,
                error,
                phases,
                restored,
                initialization_ns,
                log_tail,
            })),
        };
        guard.armed = false;
        report(&owner, last);
    }
}

/// The error of a start whose task ended without a word.
pub(super) fn lost_start() -> StartError {
    StartError::Sandbox("its task ended unexpectedly".to_owned())
}

/// Without an owner the platform ends, and nobody needs to know.
fn report(owner: &UnboundedSender<Message>, message: Message) {
    let _ = owner.send(message);
}

struct Running<I, L> {
    id: InstanceId,
    instance: I,
    log: Arc<L>,
    orders: UnboundedReceiver<Order>,
    /// Orders that came while a request was served.
    deferred: VecDeque<Order>,
    owner: UnboundedSender<Message>,
    stop_grace: Duration,
    paused: Option<Pause>,
    /// The pause that comes once the instance can be paused, unless a request comes before.
    postponed: Option<Pause>,
}

impl<I: RunningInstance, L: Log> Running<I, L> {
    /// Carries out orders until the instance has ended; returns why it has.
    async fn follow(&mut self) -> &'static str {
        loop {
            let order = match self.deferred.pop_front() {
                Some(order) => Some(order),
                None => tokio::select! {
                    biased;
                    order = self.orders.recv() => order,
                    () = self.instance.exited() => return self.instance.end_reason(),
                    order = once_free(&self.instance, self.postponed) => Some(order),
                },
            };
            match order {
                Some(Order::Serve(work)) => {
                    let ended = if self.instance.is_server() {
                        self.serve_several(*work).await
                    } else {
                        self.serve(*work).await
                    };
                    if let Some(reason) = ended {
                        return reason;
                    }
                }
                Some(Order::Pause(how)) => {
                    let paused = match how {
                        Pause::Freeze => self.instance.freeze().await,
                        Pause::ScaleDown => self.instance.scale_down().await,
                    };
                    // Where that cannot be done it idles on, and is warm.
                    self.paused = paused.is_ok().then_some(how);
                    let is_busy = paused.is_err_and(|it| it.kind() == ErrorKind::ResourceBusy);
                    self.postponed = is_busy.then_some(how);
                }
                Some(Order::Stop(reason)) => {
                    self.instance.retire(self.stop_grace).await;
                    return stop_reason(reason);
                }
                // What it served has ended meanwhile.
                Some(Order::Preempt(_)) => {
                    self.instance.stop(Duration::ZERO).await;
                    return "preempted";
                }
                Some(Order::SetCpu(assignment)) => self.set_cpu(assignment),
                None => {
                    self.instance.stop(Duration::ZERO).await;
                    return "shutdown";
                }
            }
        }
    }

    fn set_cpu(&self, assignment: CpuAssignment) {
        match self.instance.set_cpu(assignment) {
            // None of this host's can be, which was said at the start.
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => {
                tracing::warn!(instance = self.id.0, "its CPUs cannot be set: {error}");
            }
            Ok(()) => {}
        }
    }

    /// Serves a request and reports; returns why the instance has ended, if it has.
    async fn serve(&mut self, mut work: Work) -> Option<&'static str> {
        if !self.load_payload(&mut work).await {
            return None;
        }
        let Ok(resume) = self.resume().await else {
            self.served(&work, ServeResult::Undelivered { preempted: false });
            return Some("exit");
        };
        let instance = self.instance.clone();
        let request = std::mem::take(&mut work.request);
        let mut invocation = pin!(instance.invoke(request));
        let mut preempted = None;
        let reply = loop {
            tokio::select! {
                biased;
                reply = &mut invocation => break reply,
                order = self.orders.recv(), if preempted.is_none() => match order {
                    Some(Order::Preempt(why)) => preempted = self.preempt(why).await,
                    // Nobody is left who would read why.
                    None => preempted = self.preempt(Preemption::Room).await,
                    Some(order) => self.deferred.push_back(order),
                },
            }
        };
        self.replied(&work, reply, resume, preempted)
    }

    /// Serves a request, and those that come meanwhile beside it, and reports each; returns why the
    /// instance has ended, if it has. Orders that are to find it idle wait until it is.
    async fn serve_several(&mut self, first: Work) -> Option<&'static str> {
        let Ok(mut resume) = self.resume().await else {
            self.served(&first, ServeResult::Undelivered { preempted: false });
            return Some("exit");
        };
        let mut in_flight = JoinSet::new();
        let mut works = HashMap::new();
        let (mut preempted, mut gone) = (None, None);
        let mut next = Some(first);
        loop {
            if let Some(mut work) = next.take()
                && self.load_payload(&mut work).await
            {
                let (instance, id) = (self.instance.clone(), work.id);
                let request = std::mem::take(&mut work.request);
                works.insert(id, (work, resume.take()));
                in_flight.spawn(async move { (id, instance.invoke(request).await) });
            }
            if in_flight.is_empty() {
                return gone;
            }
            tokio::select! {
                biased;
                Some(ended) = in_flight.join_next() => match ended {
                    Ok((id, reply)) => {
                        if let Some((work, resume)) = works.remove(&id) {
                            gone = self.replied(&work, reply, resume, preempted).or(gone);
                        }
                    }
                    // As if this task had served it itself.
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                order = self.orders.recv(), if preempted.is_none() => match order {
                    Some(Order::Serve(work)) if gone.is_none() && self.deferred.is_empty() => {
                        next = Some(*work);
                    }
                    Some(Order::Preempt(why)) => preempted = self.preempt(why).await,
                    // Nobody is left who would read why.
                    None => preempted = self.preempt(Preemption::Room).await,
                    // What came after it would wait for as long as there are requests.
                    Some(Order::SetCpu(assignment)) => self.set_cpu(assignment),
                    Some(order) => self.deferred.push_back(order),
                },
            }
        }
    }

    /// Stops it, whatever it serves.
    async fn preempt(&self, why: Preemption) -> Option<Preemption> {
        self.instance.stop(Duration::ZERO).await;
        Some(why)
    }

    /// Reads the payload of a stored event; if it cannot be, reports that and returns false.
    async fn load_payload(&self, work: &mut Work) -> bool {
        let Some(event) = work.stored else { return true };
        let missing = match self.log.clone().payload(event).await {
            Ok(Some(payload)) => {
                work.request.payload = payload;
                return true;
            }
            Ok(None) => None,
            Err(error) => Some(error.to_string()),
        };
        self.served(work, ServeResult::NoPayload(missing));
        false
    }

    /// Undoes the pause, if there is one; where that fails, ends the instance.
    async fn resume(&mut self) -> Result<Option<Resume>, std::io::Error> {
        let start = Moment::now();
        let paused = self.paused.take();
        self.postponed = None;
        let resumed = match paused {
            Some(Pause::Freeze) => self.instance.thaw().await,
            Some(Pause::ScaleDown) => self.instance.scale_up().await,
            None => Ok(()),
        };
        if resumed.is_err() {
            // It is gone, stays frozen, or would be given less than is paid for.
            self.instance.stop(Duration::ZERO).await;
        }
        resumed.map(|()| paused.map(|pause| Resume { pause, start, end: Moment::now() }))
    }

    /// Reports what became of a request; returns why the instance has ended, if it has.
    fn replied(
        &self,
        work: &Work,
        reply: Reply,
        resume: Option<Resume>,
        preempted: Option<Preemption>,
    ) -> Option<&'static str> {
        // A runtime that does not ask for the request in time has used up the time.
        if !reply.delivered && reply.outcome != Outcome::Timeout {
            let preempted = preempted.is_some();
            self.served(work, ServeResult::Undelivered { preempted });
            return Some(if preempted { "preempted" } else { "exit" });
        }
        let gone = match &reply.outcome {
            _ if preempted.is_some() => Some("preempted"),
            outcome if outcome.instance_survives() => None,
            Outcome::Timeout | Outcome::Late(_) => Some("timeout"),
            Outcome::OutOfMemory => Some("out_of_memory"),
            Outcome::WorkerLost(_) => Some("worker_gone"),
            _ => Some("exit"),
        };
        // An answer that came before the end counts.
        let preempted = preempted.filter(|_| !reply.outcome.instance_survives());
        let reply = Box::new(reply);
        self.served(work, ServeResult::Replied { reply, resume, preempted });
        gone
    }

    fn served(&self, work: &Work, result: ServeResult) {
        let idle_cpu = self.instance.idle_cpu();
        let served = Served { instance: self.id, request: work.id, result, idle_cpu };
        report(&self.owner, Message::Served(Box::new(served)));
    }
}

/// The order for a pause that the instance has refused, when it does so no longer.
async fn once_free<I: RunningInstance>(instance: &I, postponed: Option<Pause>) -> Order {
    let Some(how) = postponed else { return std::future::pending().await };
    instance.free().await;
    Order::Pause(how)
}

fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::KeepAlive => "keep_alive",
        StopReason::ScaledDown => "scaled_down",
        StopReason::Evicted => "evicted",
        StopReason::Update => "update",
        StopReason::Delete => "delete",
        StopReason::Drained => "drained",
        StopReason::Shutdown => "shutdown",
        StopReason::Preempted => "preempted",
    }
}
