//! What the owner does with instances, and with what they report.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use uncia_clock::Moment;
use uncia_policy::{End, Event, FunctionId, InstanceId, Rejection, RequestId, Usage, WorkerId};

use super::{FailedInstance, Owner};
use crate::dispatch::Disposition;
use crate::dispatch::host::{InstanceHost, Log};
use crate::dispatch::instance_task::{InstanceTask, lost_start};
use crate::dispatch::instances::InstanceState;
use crate::dispatch::message::{FailedStart, Order, Preemption, Resume, ServeResult, Served};
use crate::dispatch::requests::Source;
use crate::dispatch::row::{self, Execution, Interruption};
use crate::ids;
use crate::instance::{Outcome, Phase, Reply};
use crate::meterlog::EventUpdate;

impl<H: InstanceHost, L: Log> Owner<H, L> {
    pub(super) fn start(&mut self, id: InstanceId, function: FunctionId, worker: WorkerId) {
        let Some(state) = self.functions.get(&function) else {
            // Deleted, and nothing of it waits.
            self.notify_scheduler_later(Event::InstanceFailed { instance: id });
            return;
        };
        let function = state.function.clone();
        let (orders, ordered) = mpsc::unbounded_channel();
        let name = ids::instance().into();
        let mut state = InstanceState::new(name, function, orders, worker);
        state.hint_idle = self.scheduler.reads_hints().then_some(0);
        state.worker_name = self.host.worker_name(worker);
        state.counts_reservations =
            self.config.counts_reservations() || self.host.counts_reservations(worker);
        let task = InstanceTask {
            id,
            worker,
            host: self.host.clone(),
            log: self.log.clone(),
            spec: state.function.instance_spec(&state.name, &self.config),
            orders: ordered,
            owner: self.inbox.clone(),
            stop_grace: self.config.stop_grace(),
        };
        self.log.instance(state.row());
        self.instances.insert(id, state);
        tokio::spawn(task.run());
    }

    pub(super) fn started(
        &mut self,
        id: InstanceId,
        phases: &[Phase],
        restored: bool,
        start_ns: i64,
    ) {
        let Some(state) = self.instances.get_mut(&id) else { return };
        state.become_ready(phases, restored, start_ns);
        self.log.instance(state.row());
        if let Some(function) = self.functions.get_mut(&state.function.id) {
            function.start_error = None;
        }
        let initialization = start_ns.try_into().unwrap_or_default();
        self.notify_scheduler(Event::InstanceReady { instance: id, initialization });
    }

    pub(super) fn start_failed(&mut self, start: FailedStart) {
        let id = start.instance;
        let Some(mut state) = self.instances.remove(&id) else { return };
        self.forget_if_deleted(&state);
        let worker = state.worker;
        state.end_start(&start.phases, start.restored, start.initialization_ns);
        self.log.instance(state.ended_row("init_error", None));
        if let Some(function) = self.functions.get_mut(&state.function.id) {
            function.start_error = Some(start.error.to_string());
        }
        self.failed_starts.insert(id, Arc::new(FailedInstance { state, start }));
        self.notify_scheduler(Event::InstanceFailed { instance: id });
        self.forget_worker(worker);
        // If it is still there, its request was served by another instance.
        self.failed_starts.remove(&id);
    }

    pub(super) fn served(&mut self, served: Served) {
        let Served { instance: id, request, result, idle_cpu } = served;
        let Some(instance) = self.instances.get_mut(&id) else { return };
        instance.unassign(request);
        instance.idle_cpu = idle_cpu;
        match result {
            ServeResult::Replied { reply, resume, preempted } => {
                self.replied(id, request, *reply, resume, preempted);
            }
            ServeResult::Undelivered { preempted } => self.undelivered(request, id, preempted),
            ServeResult::NoPayload(error) => {
                let source = self.take_request(request).map(|pending| pending.source);
                if let (Some(Source::Event(event)), Some(error)) = (source, error) {
                    tracing::warn!(
                        request = &*event.request_id,
                        "the payload of an event cannot be read, and is tried again: {error}"
                    );
                    self.defer(*event);
                }
                let (end, usage) = (End::Survives, Usage::default());
                self.notify_scheduler(Event::InvocationEnded { request, instance: id, end, usage });
            }
        }
    }

    /// An instance was given the request, and has answered or ended.
    fn replied(
        &mut self,
        id: InstanceId,
        request: RequestId,
        reply: Reply,
        resume: Option<Resume>,
        preempted: Option<Preemption>,
    ) {
        let survives = reply.outcome.instance_survives();
        let (end, interruption) = match preempted {
            Some(why) => (End::Preempted, Some(Interruption::Preempted(why))),
            None if survives => (End::Survives, None),
            None => (End::Gone, self.closing.then_some(Interruption::Stopped)),
        };
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(pending) = self.requests.get_mut(&request) else { return };
        let counts = instance.counts_reservations;
        let execution = Execution { instance, reply: &reply, resume, interruption, counts };
        let mut recorded = row::of_reply(pending, &execution);
        instance.is_start_told |= recorded.row.initialization.is_some();
        recorded.idle = instance.serve(&reply, resume);
        self.log.output(&recorded.row, &reply.log_tail);
        if let (Some(_), Source::Event(event)) = (interruption, &mut pending.source) {
            // It did not fail: another attempt follows, here or with the next worker.
            event.attempt = pending.attempt;
            recorded.event =
                Some(EventUpdate::Attempted { id: event.id, attempt: pending.attempt });
        }
        let usage = match reply.outcome {
            // How long it took to notice is no function's duration.
            Outcome::WorkerLost(_) => Usage::default(),
            _ => Usage {
                duration: reply.ended.since(reply.started).try_into().unwrap_or_default(),
                ..row::usage(&reply.usage)
            },
        };
        match interruption {
            Some(Interruption::Preempted(_)) => {
                pending.attempt += 1;
                pending.accepted = Moment::now();
                // The row of an attempt that is repeated; nobody waits for it.
                let _ = self.log.invocation(Arc::new(recorded));
            }
            Some(Interruption::Stopped) => {
                if let Some(pending) = self.take_request(request) {
                    match pending.source {
                        // Without its row, the next worker takes the attempt for one that was
                        // never made.
                        Source::Event(_) => drop(self.log.invocation(Arc::new(recorded))),
                        source => {
                            let disposition = Disposition::Rejected(Rejection::ShuttingDown);
                            self.answer(source, recorded, disposition, reply.log_tail);
                        }
                    }
                }
            }
            None => {
                if let Some(pending) = self.take_request(request) {
                    self.end(pending, recorded, reply.outcome, reply.log_tail);
                }
            }
        }
        self.notify_scheduler(Event::InvocationEnded { request, instance: id, end, usage });
    }

    /// The instance was gone before it was given the request: another may try.
    fn undelivered(&mut self, request: RequestId, id: InstanceId, preempted: bool) {
        let Some(pending) = self.requests.get_mut(&request) else { return };
        if self.closing || preempted || pending.may_be_assigned_again() {
            self.notify_scheduler(Event::Undelivered { request, instance: id });
            return;
        }
        let Some(instance) = self.instances.get(&id) else { return };
        let how = "it ended each time before it was given the request".to_owned();
        let recorded = row::never_delivered(pending, instance, &how);
        if let Some(pending) = self.take_request(request) {
            self.end(pending, recorded, Outcome::Exited(how), Bytes::new());
        }
        let usage = Usage::default();
        self.notify_scheduler(Event::InvocationEnded {
            request,
            instance: id,
            end: End::Gone,
            usage,
        });
    }

    pub(super) fn ended(&mut self, id: InstanceId, reason: &'static str, idle_cpu: Option<i64>) {
        let Some(state) = self.instances.get_mut(&id) else { return };
        if !state.is_ready() {
            let began = state.began;
            self.start_failed(FailedStart {
                instance: id,
                error: lost_start(),
                phases: Vec::new(),
                restored: false,
                initialization_ns: Moment::now().since(began),
                log_tail: Bytes::new(),
            });
            return;
        }
        // What it was assigned meanwhile it was not given: its task reports each request before its
        // own end.
        for request in std::mem::take(&mut state.assigned) {
            self.undelivered(request, id, reason == "preempted");
        }
        let Some(mut state) = self.instances.remove(&id) else { return };
        self.forget_if_deleted(&state);
        self.log.instance(state.ended_row(reason, idle_cpu));
        self.notify_scheduler(Event::InstanceGone { instance: id });
        self.forget_worker(state.worker);
    }

    /// An instance that was being started when its function was deleted has asked for others like it.
    fn forget_if_deleted(&self, state: &InstanceState) {
        if !self.function_ids.contains_key(&state.function.qualified_name) {
            self.host.forget(&state.function.qualified_name);
        }
    }

    pub(super) fn assign(&mut self, request: RequestId, id: InstanceId) {
        let Some(instance) = self.instances.get_mut(&id) else { return };
        let Some(pending) = self.requests.get(&request) else { return };
        instance.assign(request);
        let work = pending.work(request, &instance.function);
        self.order(id, Order::Serve(Box::new(work)));
    }

    /// Orders an instance to end.
    pub(super) fn stop(&mut self, id: InstanceId, order: Order) {
        if let Some(instance) = self.instances.get_mut(&id) {
            instance.is_stopping = true;
        }
        self.order(id, order);
    }

    pub(super) fn order(&self, id: InstanceId, order: Order) {
        if let Some(instance) = self.instances.get(&id) {
            // If its task has ended, its last message is on its way, and what it was assigned is
            // known here.
            let _ = instance.orders.send(order);
        }
    }
}
