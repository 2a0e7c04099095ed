//! Instances as the owner knows them, and their rows in the log.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use uncia_clock::Moment;
use uncia_policy::{RequestId, WorkerId};
use uncia_record::{Instance as InstanceRow, Span};

use super::message::{Order, Resume};
use super::row::PLATFORM;
use crate::function::Function;
use crate::instance::{Phase, Reply};
use crate::meterlog::IdleInterval;

/// An instance from the decision to start it until nothing of it is left.
pub(super) struct InstanceState {
    pub name: Arc<str>,
    /// Where it is, and what rows call that.
    pub worker: WorkerId,
    pub worker_name: Option<Arc<str>>,
    /// Whether what instances reserve is counted there.
    pub counts_reservations: bool,
    pub function: Arc<Function>,
    pub orders: UnboundedSender<Order>,
    /// What it was ordered to serve and has not reported.
    pub assigned: Vec<RequestId>,
    pub began: Moment,
    /// How long its start took, in ns, once that has ended, well or not.
    pub start_ns: Option<i64>,
    /// Whether its start reused a runtime that had been started before.
    pub restored: bool,
    /// The phases of its start, until the first request's row has them.
    pub spans: Vec<Span>,
    /// Whether a request's row has its start.
    pub is_start_told: bool,
    pub invocations: i64,
    pub idle_cpu: Option<i64>,
    /// Its control group, once it is ready.
    pub cgroup: Option<String>,
    /// Whether it was ordered to end.
    pub is_stopping: bool,
    /// How long it has idled on the account of hints, in ns; None where nobody reads hints.
    pub hint_idle: Option<i64>,
    /// Since when it does.
    on_hint_since: Option<Moment>,
    ready: bool,
    idle_since: Option<Moment>,
    /// When it was last given a request while it had none.
    busy_from: Option<Moment>,
    /// When the last of its requests so far has ended.
    last_ended: Option<Moment>,
}

impl InstanceState {
    pub(super) fn new(
        name: Arc<str>,
        function: Arc<Function>,
        orders: UnboundedSender<Order>,
        worker: WorkerId,
    ) -> Self {
        Self {
            name,
            worker,
            worker_name: None,
            counts_reservations: false,
            function,
            orders,
            assigned: Vec::new(),
            began: Moment::now(),
            start_ns: None,
            restored: false,
            spans: Vec::new(),
            is_start_told: false,
            invocations: 0,
            idle_cpu: None,
            cgroup: None,
            is_stopping: false,
            hint_idle: None,
            on_hint_since: None,
            ready: false,
            idle_since: None,
            busy_from: None,
            last_ended: None,
        }
    }

    /// Its start has ended well, and it idles.
    pub(super) fn become_ready(&mut self, phases: &[Phase], restored: bool, start_ns: i64) {
        self.end_start(phases, restored, start_ns);
        self.ready = true;
        self.idle_since = Some(self.began.plus(start_ns));
    }

    /// Its start has ended, well or not.
    pub(super) fn end_start(&mut self, phases: &[Phase], restored: bool, start_ns: i64) {
        self.restored = restored;
        self.start_ns = Some(start_ns);
        self.spans = phases
            .iter()
            .map(|phase| Span {
                instance: Some(self.name.clone()),
                name: Arc::from(phase.name),
                start: phase.start.unix(),
                end: phase.start.unix() + phase.end.since(phase.start),
                clock: Arc::from("platform"),
                ..Span::default()
            })
            .collect();
    }

    /// What its start is called in the tables.
    pub(super) fn start_word(&self) -> &'static str {
        if self.restored { "restored" } else { "cold" }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    /// From now on until it serves or is released, it idles on the account of hints.
    pub(super) fn hold(&mut self) {
        self.on_hint_since.get_or_insert_with(Moment::now);
    }

    /// From now on it idles on nobody's account.
    pub(super) fn release(&mut self) {
        self.end_hint(Moment::now());
    }

    pub(super) fn assign(&mut self, request: RequestId) {
        if self.assigned.is_empty() {
            self.busy_from = Some(Moment::now());
        }
        self.assigned.push(request);
    }

    pub(super) fn unassign(&mut self, request: RequestId) {
        self.assigned.retain(|assigned| *assigned != request);
    }

    /// It has served a request, and idles again if it survived; returns how long it idled before.
    pub(super) fn serve(&mut self, reply: &Reply, resume: Option<Resume>) -> Option<IdleInterval> {
        self.invocations += 1;
        let busy_from = resume.map_or(reply.started, |resume| resume.start);
        // Of requests that overlap, another may have begun before this one.
        let busy_from = self.busy_from.filter(|_| reply.shared).unwrap_or(busy_from);
        let idle = self.idle_until(busy_from);
        let idles = reply.outcome.instance_survives() && self.assigned.is_empty();
        // Nor is the one that is reported last the one that ended last.
        let last = self.last_ended.filter(|last| reply.shared && last.since(reply.ended) > 0);
        let last = last.unwrap_or(reply.ended);
        self.last_ended = Some(last);
        self.idle_since = idles.then_some(last);
        idle
    }

    /// Whether it has served for so long without a break.
    pub(super) fn has_served_for(&self, time: Duration) -> bool {
        let least = i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        !self.assigned.is_empty()
            && self.busy_from.is_some_and(|from| Moment::now().since(from) >= least)
    }

    fn idle_until(&mut self, end: Moment) -> Option<IdleInterval> {
        self.end_hint(end);
        let since = self.idle_since.take()?;
        // As the row's other stamps: by the real-time clock as it was set when the start began.
        let start = self.began.at(since.monotonic()).unix();
        let length = end.since(since).max(0);
        Some(IdleInterval { instance: self.name.clone(), start, end: start + length })
    }

    /// Counts what it has idled on the account of hints up to `end`.
    fn end_hint(&mut self, end: Moment) {
        let on_hint = self.on_hint_since.take();
        if let (Some(idle), Some(on_hint)) = (self.idle_since, on_hint) {
            let time = end.since(on_hint).min(end.since(idle)).max(0);
            self.hint_idle = self.hint_idle.map(|sum| sum + time);
        }
    }

    /// What is said of it while it lives. Its idle intervals are rows of their own.
    pub(super) fn row(&self) -> InstanceRow {
        let initialized = self.start_ns.filter(|_| self.ready).map(|ns| self.began.unix() + ns);
        InstanceRow {
            platform: Some(Arc::from(PLATFORM)),
            function: self.function.name.clone(),
            instance: self.name.clone(),
            worker: self.worker_name.clone(),
            started: self.began.unix(),
            initialized,
            // Nobody knows before.
            start: self.start_ns.map(|_| Arc::from(self.start_word())),
            allocated_cpu: i64::try_from(self.function.cpu_micro()).ok(),
            allocated_memory: i64::try_from(self.function.memory_bytes()).ok(),
            invocations: Some(self.invocations),
            idle_cpu: self.idle_cpu,
            cgroup: self.cgroup.clone(),
            ..InstanceRow::default()
        }
    }

    /// What the log says of it in the end, with the last of its idle intervals.
    pub(super) fn ended_row(&mut self, reason: &'static str, idle_cpu: Option<i64>) -> InstanceRow {
        let idle = self.idle_until(Moment::now()).map(|idle| vec![(idle.start, idle.end)]);
        InstanceRow {
            idle,
            ended: Some(self.began.unix() + Moment::now().since(self.began)),
            end_reason: Some(Arc::from(reason)),
            idle_cpu: idle_cpu.or(self.idle_cpu),
            hint_idle: self.hint_idle,
            ..self.row()
        }
    }
}
