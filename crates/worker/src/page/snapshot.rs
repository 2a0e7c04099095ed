//! What runs at a moment, as the page's events say it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use uncia_policy::Counts;

use crate::api::Api;
use crate::dispatch::Overview;
use crate::function::Function;
use crate::meterlog::Recorded;
use crate::monitor::{Point, Seen, Totals, cpu_time};

/// Functions that are shown: those with the most invocations.
const MAX_FUNCTIONS: usize = 100;
/// Rows of a second that are shown: the last of them.
const MAX_ROWS: usize = 20;
/// Warnings that are shown, and characters of each.
const MAX_WARNINGS: usize = 20;
const MAX_WARNING_CHARS: usize = 500;

const NS_PER_MS: i64 = 1_000_000;

/// Up to where messages have told of what happened.
pub(super) struct Cursor {
    second: i64,
    row: u64,
}

impl Cursor {
    /// All that has happened so far.
    pub(super) fn now(api: &Api) -> Self {
        let now = api.monitor.now();
        api.monitor.read(|seen| {
            let last = seen.seconds.after(0, now).last().map(|point| point.second);
            Self { second: last.unwrap_or(0), row: seen.recent.last() }
        })
    }
}

/// What runs, and what has happened of late.
#[derive(Serialize)]
struct Snapshot {
    now_ms: i64,
    started_ms: i64,
    version: &'static str,
    instances: Instances,
    /// Requests that wait for an instance, or to be admitted.
    waiting: usize,
    /// Asynchronous invocations that are not done.
    events: usize,
    functions: Vec<FunctionNow>,
    functions_left_out: usize,
    points: Vec<Point>,
    rows: Vec<Row>,
    /// Whether somebody computes bills.
    has_biller: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<Vec<String>>,
}

/// Instances by what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Instances {
    starting: usize,
    busy: usize,
    /// Without those that are paused.
    idle: usize,
    frozen: usize,
    scaled_down: usize,
    stopping: usize,
}

impl Instances {
    fn add(&mut self, counts: &Counts) {
        self.starting += counts.starting;
        self.busy += counts.busy;
        self.idle += counts.idle.saturating_sub(counts.frozen + counts.scaled_down);
        self.frozen += counts.frozen;
        self.scaled_down += counts.scaled_down;
        self.stopping += counts.stopping;
    }
}

/// A function, with all its versions, and what its invocations come to since the start; what was not
/// measured is null, and so is all of a function that has no totals of its own.
#[derive(Serialize)]
struct FunctionNow {
    name: Arc<str>,
    runtime: String,
    memory_mb: u64,
    is_broken: bool,
    instances: Instances,
    waiting: usize,
    invocations: Option<u64>,
    failures: Option<u64>,
    starts: Option<u64>,
    /// Mean execution.
    execution_ns: Option<u64>,
    cpu_ns: Option<u64>,
    throttled_ns: Option<u64>,
    memory_peak: Option<i64>,
}

/// An invocation.
#[derive(Serialize)]
struct Row {
    number: u64,
    function: Arc<str>,
    request_id: Option<String>,
    instance: Option<Arc<str>>,
    outcome: Arc<str>,
    error: Option<String>,
    start: Option<Arc<str>>,
    attempt: i64,
    shared: Option<bool>,
    ended_ms: Option<i64>,
    queued: Option<i64>,
    initialization: Option<i64>,
    execution: Option<i64>,
    cpu: Option<i64>,
    throttled: Option<i64>,
    memory_peak: Option<i64>,
    allocated_memory: Option<i64>,
    /// Parts of the start, and the end of a pause.
    phases: Vec<(Arc<str>, i64)>,
}

impl Row {
    fn new(number: u64, recorded: &Recorded) -> Self {
        let row = &recorded.row;
        let phases = recorded.spans.iter().map(|span| (span.name.clone(), span.end - span.start));
        Self {
            number,
            function: row.function.clone(),
            request_id: row.request_id.clone(),
            instance: row.instance.clone(),
            outcome: row.outcome.clone(),
            error: row.error.clone(),
            start: row.start.clone(),
            attempt: row.attempt,
            shared: row.shared,
            ended_ms: row.ended.map(|ns| ns / NS_PER_MS),
            queued: row.queued,
            initialization: row.initialization,
            execution: row.execution,
            cpu: cpu_time(row),
            throttled: row.throttled_time,
            memory_peak: row.memory_peak,
            allocated_memory: row.allocated_memory,
            phases: phases.collect(),
        }
    }
}

/// The event with all that the page shows.
pub(super) async fn whole(api: &Api) -> Bytes {
    let mut snapshot = Snapshot::new(api, &mut Cursor { second: 0, row: 0 }, usize::MAX).await;
    let warnings = api.warnings().into_iter().take(MAX_WARNINGS);
    let warnings = warnings.map(|it| it.chars().take(MAX_WARNING_CHARS).collect());
    snapshot.warnings = Some(warnings.collect());
    snapshot.event("state")
}

/// The event with what has happened since `cursor`, which it moves.
pub(super) async fn since(api: &Api, cursor: &mut Cursor) -> Bytes {
    Snapshot::new(api, cursor, MAX_ROWS).await.event("tick")
}

impl Snapshot {
    async fn new(api: &Api, cursor: &mut Cursor, max_rows: usize) -> Self {
        let overview = api.dispatcher.overview().await;
        let now = api.monitor.now();
        let mut instances = Instances::default();
        instances.add(&overview.counts);
        let registered = api.registry.all();
        api.monitor.read(|seen| {
            let points: Vec<Point> = seen.seconds.after(cursor.second, now).cloned().collect();
            let rows = seen.recent.after(cursor.row, max_rows);
            let rows = rows.map(|(number, recorded)| Row::new(number, recorded)).collect();
            cursor.second = points.last().map_or(cursor.second, |point| point.second);
            cursor.row = seen.recent.last();
            Self {
                now_ms: now.unix() / NS_PER_MS,
                started_ms: api.monitor.started().unix() / NS_PER_MS,
                version: env!("CARGO_PKG_VERSION"),
                instances,
                waiting: overview.counts.waiting + overview.counts.backlog,
                events: api.dispatcher.events_waiting(),
                functions: functions_now(&registered, &overview, seen),
                functions_left_out: registered.len().saturating_sub(MAX_FUNCTIONS),
                points,
                rows,
                has_biller: api.page.has_biller(),
                warnings: None,
            }
        })
    }

    fn event(&self, name: &str) -> Bytes {
        // It has nothing that JSON has no form for.
        let json = serde_json::to_string(self).unwrap_or_default();
        Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
    }
}

fn functions_now(
    registered: &[Arc<Function>],
    overview: &Overview,
    seen: &Seen,
) -> Vec<FunctionNow> {
    let mut counts: HashMap<&str, (Instances, usize)> = HashMap::new();
    for (function, of_version) in &overview.functions {
        let (instances, waiting) = counts.entry(&function.name).or_default();
        instances.add(of_version);
        *waiting += of_version.waiting + of_version.backlog;
    }
    let mut functions: Vec<_> = registered
        .iter()
        .map(|function| (function, seen.functions.known(&function.name)))
        .collect();
    functions.sort_by_key(|(_, totals)| std::cmp::Reverse(totals.map(Totals::invocations)));
    functions.truncate(MAX_FUNCTIONS);
    let now = functions.into_iter().map(|(function, totals)| {
        let (instances, waiting) = counts.get(&*function.name).copied().unwrap_or_default();
        let mean = |it: &Totals| it.execution.sum_ns().checked_div(it.execution.count().into());
        FunctionNow {
            name: function.name.clone(),
            runtime: function.configuration.runtime.clone(),
            memory_mb: function.configuration.memory_mb,
            is_broken: function.broken.is_some(),
            instances,
            waiting,
            invocations: totals.map(Totals::invocations),
            failures: totals.map(Totals::failures),
            starts: totals.map(Totals::starts),
            execution_ns: totals.and_then(mean).map(to_u64),
            cpu_ns: totals.and_then(Totals::cpu_ns).map(to_u64),
            throttled_ns: totals.and_then(|it| it.throttled.known()).map(to_u64),
            memory_peak: totals.and_then(|it| it.memory_peak),
        }
    });
    now.collect()
}

fn to_u64(value: u128) -> u64 {
    value.try_into().unwrap_or(u64::MAX)
}
