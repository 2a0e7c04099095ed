//! The task of an instance: from its start to its end, one order after the other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use uncia_clock::monotonic_ns;
use uncia_policy::{Event, InstanceId, Pause, Rejection, RequestId, StopReason};
use uncia_record::{Instance as InstanceRow, Span};

use super::row::{self, Running};
use super::{Answer, Answered, Birth, Dispatcher, Failure, Pending};
use crate::clock::Moment;
use crate::function::Function;
use crate::ids;
use crate::instance::{Instance, InstanceSpec, Outcome, Reply, Request, Started};
use crate::meterlog::Recorded;

/// What an instance is to do.
pub enum Order {
    /// After undoing the pause, if it is paused.
    Serve {
        request: RequestId,
    },
    Pause(Pause),
    Stop(StopReason),
}

impl Dispatcher {
    /// Starts an instance, and follows it to its end.
    pub(super) async fn start(self: Arc<Self>, id: InstanceId, function: Arc<Function>) {
        let began = Moment::now();
        let name: Arc<str> = Arc::from(ids::instance());
        let started = self.host.start(self.spec(&function, &name)).await;
        let Started { result, phases, initialization_ns, log_tail } = started;
        let ready = began.plus(initialization_ns);
        let spans = phases
            .iter()
            .map(|phase| Span {
                instance: Some(name.clone()),
                name: Arc::from(phase.name),
                start: phase.start.unix(),
                end: phase.end.unix(),
                clock: Arc::from("platform"),
                ..Span::default()
            })
            .collect();
        let birth =
            Birth { name, function, began, ready, initialization: initialization_ns, spans };
        match result {
            Ok(instance) => self.live(id, instance, birth).await,
            Err(error) => {
                let mut row = self.instance_row(&birth);
                row.ended = Some(birth.ready.unix());
                row.end_reason = Some(Arc::from("init_error"));
                row.invocations = Some(0);
                self.log.instance(row);
                self.books().failures.insert(id, Failure { error, log_tail, birth });
                self.happened(Event::InstanceFailed { instance: id });
                // Its request was served by another instance.
                self.books().failures.remove(&id);
            }
        }
    }

    fn spec(&self, function: &Function, name: &str) -> InstanceSpec {
        let overrides = &function.overrides;
        InstanceSpec {
            id: name.to_owned(),
            function: function.name.to_string(),
            function_arn: function.arn.clone(),
            version: "$LATEST".to_owned(),
            runtime: function.runtime(),
            handler: function.configuration.handler.clone(),
            code: function.code.folder(),
            environment: function.configuration.environment.clone(),
            memory_bytes: function.memory_bytes(),
            cpu_micro: function.cpu_micro(),
            period_us: overrides.period_us.unwrap_or(self.config.period_us),
            ephemeral_bytes: function.ephemeral_bytes(),
            pids_max: self.config.pids_max,
            network: overrides.network.unwrap_or(self.config.default_network.into()),
            enforcement: overrides.enforcement.unwrap_or(self.config.enforcement),
            init_throttled: overrides.init_throttled.unwrap_or(self.config.init_throttled),
            init_timeout: Duration::from_millis(self.config.init_timeout_ms),
        }
    }

    fn instance_row(&self, birth: &Birth) -> InstanceRow {
        InstanceRow {
            platform: Some(Arc::from("embedded")),
            function: birth.function.name.clone(),
            instance: birth.name.clone(),
            started: birth.began.unix(),
            start: Some(Arc::from("cold")),
            allocated_cpu: i64::try_from(birth.function.cpu_micro()).ok(),
            allocated_memory: i64::try_from(birth.function.memory_bytes()).ok(),
            ..InstanceRow::default()
        }
    }

    async fn live(self: Arc<Self>, id: InstanceId, instance: Instance, birth: Birth) {
        let (orders, mut ordered) = mpsc::unbounded_channel();
        let mut life = Life {
            row: InstanceRow {
                initialized: Some(birth.ready.unix()),
                invocations: Some(0),
                idle: Some(Vec::new()),
                ..self.instance_row(&birth)
            },
            idle_since: Some(birth.ready),
            birth,
            paused: None,
        };
        self.log.instance(life.row.clone());
        {
            let mut books = self.books();
            books.live.insert(id, orders);
            books.rows.insert(id, life.row.clone());
        }
        self.happened(Event::InstanceReady { instance: id });
        let reason: &'static str = loop {
            tokio::select! {
                biased;
                order = ordered.recv() => match order {
                    Some(Order::Serve { request }) => {
                        let gone = self.serve(id, &instance, &mut life, request).await;
                        if let Some(reason) = gone {
                            break reason;
                        }
                    }
                    Some(Order::Pause(how)) => {
                        let paused = match how {
                            Pause::Freeze => instance.freeze().await,
                            Pause::ScaleDown => instance.scale_down(),
                        };
                        // Where that can't be done they idle on, and are warm.
                        life.paused = paused.is_ok().then_some(how);
                    }
                    Some(Order::Stop(reason)) => {
                        instance.stop(self.config.stop_grace()).await;
                        break stop_reason(reason);
                    }
                    None => break "shutdown",
                },
                _ = instance.exited() => break "exit",
            }
        };
        life.end(reason, &instance);
        self.log.instance(life.row);
        {
            let mut books = self.books();
            books.live.remove(&id);
            books.rows.remove(&id);
        }
        // Whatever it was ordered to serve meanwhile, it did not.
        ordered.close();
        while let Some(order) = ordered.recv().await {
            if let Order::Serve { request, .. } = order {
                self.happened(Event::Undelivered { request, instance: id });
            }
        }
        // After the end of an invocation that ended the instance, it is off the books already.
        self.happened(Event::InstanceGone { instance: id });
    }

    /// Serves a request; returns why the instance is gone, if it is.
    async fn serve(
        self: &Arc<Self>,
        id: InstanceId,
        instance: &Instance,
        life: &mut Life,
        request: RequestId,
    ) -> Option<&'static str> {
        let pending = self.books().pending.remove(&request)?;
        let first = life.row.invocations == Some(0);
        let resume_began = Moment::now();
        let resumed = life.paused.take();
        match resumed {
            // If it can't be thawed it does not answer in time, which is an answer.
            Some(Pause::Freeze) => drop(instance.thaw().await),
            Some(Pause::ScaleDown) if instance.scale_up().is_err() => {
                // It is gone, or would be given less than is paid for.
                instance.stop(Duration::ZERO).await;
                self.books().pending.insert(request, pending);
                self.happened(Event::Undelivered { request, instance: id });
                return Some("exit");
            }
            Some(Pause::ScaleDown) | None => {}
        }
        life.busy_from(resume_began);
        let resume_ended = resume_began.at(monotonic_ns());
        let submission = &pending.submission;
        let reply = instance
            .invoke(Request {
                request_id: submission.request_id.clone(),
                invocation: submission.invocation.clone(),
                payload: submission.payload.clone(),
                timeout: submission.function.timeout(),
                client_context: submission.client_context.clone(),
            })
            .await;
        if !reply.delivered {
            self.books().pending.insert(request, pending);
            self.happened(Event::Undelivered { request, instance: id });
            return Some("exit");
        }
        life.served(&reply, instance);
        let survives = reply.outcome.instance_survives();
        let running = Running {
            birth: &life.birth,
            first,
            resumed: resumed.map(|how| (how, resume_began, resume_ended)),
            reply: &reply,
        };
        let recorded = row::of_reply(&pending, &running);
        self.books().rows.insert(id, life.row.clone());
        let result = Answered::Ran(reply.outcome.clone());
        let (answer, to) = self.record(pending, recorded, result, reply.log_tail).await;
        // Before the answer goes out, so that whoever sends the next request upon it finds the
        // instance free.
        self.happened(Event::InvocationDone { instance: id, survives });
        // Whoever asked may have gone away.
        let _ = to.send(answer);
        (!survives).then_some(match reply.outcome {
            Outcome::Timeout => "timeout",
            Outcome::OutOfMemory => "out_of_memory",
            _ => "exit",
        })
    }

    /// Writes the row of a request that ran to the log; the answer is an error if it isn't there.
    async fn record(
        &self,
        pending: Pending,
        recorded: Recorded,
        result: Answered,
        log_tail: Bytes,
    ) -> (Answer, oneshot::Sender<Answer>) {
        let row = recorded.row.clone();
        let result = match self.log.invocation(recorded).await {
            Ok(()) => result,
            Err(error) => Answered::NotLogged(error),
        };
        (Answer { result, row, log_tail }, pending.answer)
    }

    /// Answers a request that no instance served.
    pub(super) async fn turn_away(
        self: Arc<Self>,
        pending: Pending,
        reason: Rejection,
        failure: Option<Failure>,
    ) {
        let recorded = row::of_refusal(&pending, reason, failure.as_ref());
        let (result, log_tail) = match failure {
            Some(failure) => (Answered::NotReady(failure.error), failure.log_tail),
            None => (Answered::Rejected(reason), Bytes::new()),
        };
        let (answer, to) = self.record(pending, recorded, result, log_tail).await;
        // Whoever asked may have gone away.
        let _ = to.send(answer);
    }
}

/// An instance's row of the log, as it grows.
struct Life {
    birth: Birth,
    row: InstanceRow,
    /// Since when it serves nothing.
    idle_since: Option<Moment>,
    paused: Option<Pause>,
}

impl Life {
    fn busy_from(&mut self, time: Moment) {
        if let Some(since) = self.idle_since.take() {
            let end = since.plus(time.since(since).max(0));
            let interval = (self.stamp(since), self.stamp(end));
            self.row.idle.get_or_insert_default().push(interval);
        }
    }

    /// The Unix time of a moment by the clock as it was set when the instance started, so that its
    /// times differ by how long it took, whatever the clock was set to since.
    fn stamp(&self, moment: Moment) -> i64 {
        self.birth.began.at(moment.monotonic()).unix()
    }

    fn served(&mut self, reply: &Reply, instance: &Instance) {
        self.row.idle_cpu = instance.idle_cpu();
        *self.row.invocations.get_or_insert(0) += 1;
        self.idle_since = Some(reply.ended);
    }

    fn end(&mut self, reason: &'static str, instance: &Instance) {
        self.row.idle_cpu = instance.idle_cpu();
        let now = Moment::now();
        self.busy_from(now);
        self.row.ended = Some(self.stamp(now));
        self.row.end_reason = Some(Arc::from(reason));
    }
}

fn stop_reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::KeepAlive => "keep_alive",
        StopReason::Evicted => "evicted",
        StopReason::Update => "update",
        StopReason::Delete => "delete",
        StopReason::Shutdown => "shutdown",
    }
}
