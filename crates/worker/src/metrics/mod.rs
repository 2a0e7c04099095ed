//! `/metrics`: what a Prometheus scrapes. Each family is described in `docs/reference/metrics.md`.

mod exposition;
mod process;

use std::fmt::Display;
use std::sync::Arc;

use crate::api::{Answer, Api, bytes_answer};
use crate::dispatch::{Overview, Relief};
use crate::monitor::{Functions, Histogram, Totals};
use crate::traces::Traces;
use exposition::{CONTENT_TYPE, Exposition, Kind, Seconds};

/// Answers a scrape.
pub(crate) async fn answer(api: &Arc<Api>) -> Answer {
    let overview = api.dispatcher.overview().await;
    let mut text = Exposition::default();
    text.family("uncia_build_info", Kind::Gauge, "1, with the version of the platform.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    let functions = api.registry.all().len();
    text.family("uncia_functions", Kind::Gauge, "Functions that exist.");
    text.sample(&[], functions);
    put_overview(&mut text, &overview);
    text.family(
        "uncia_events_waiting",
        Kind::Gauge,
        "Asynchronous invocations that are accepted and not done.",
    );
    text.sample(&[], api.dispatcher.events_waiting());
    let help = "Asynchronous invocations that were accepted, and dropped with their function.";
    text.family("uncia_events_dropped_total", Kind::Counter, help);
    text.sample(&[], overview.events_dropped);
    let unrecorded = api.monitor.read(|seen| {
        put_functions(&mut text, &seen.functions);
        seen.unrecorded
    });
    text.family(
        "uncia_log_refusals_total",
        Kind::Counter,
        "Times that the log did not take the row of an invocation.",
    );
    text.sample(&[], unrecorded);
    let enforcer = u128::from(api.host.enforcer().cpu_ns);
    text.family(
        "uncia_enforcer_cpu_seconds_total",
        Kind::Counter,
        "CPU time that enforcing CPU limits took.",
    );
    text.sample(&[], Seconds(enforcer));
    put_relief(&mut text, api.dispatcher.relief());
    let hints = api.dispatcher.hints();
    let help = "Hints of requests: taken, or refused, which those that were ignored count as.";
    text.family("uncia_hints_total", Kind::Counter, help);
    text.sample(&[("result", "taken")], hints.taken());
    text.sample(&[("result", "refused")], hints.refused());
    let help = "Outputs of invocations that could not be kept.";
    text.family("uncia_output_dropped_total", Kind::Counter, help);
    text.sample(&[], api.output.dropped());
    put_traces(&mut text, api.traces.as_deref());
    text.family("uncia_page_viewers", Kind::Gauge, "Open pages that are kept up to date.");
    text.sample(&[], api.page.viewers());
    process::put(&mut text);
    bytes_answer(CONTENT_TYPE, text.finish())
}

/// Puts who was stopped because memory ran short, and how soon that was decided.
fn put_relief(text: &mut Exposition, relief: &Relief) {
    let help = "Instances that were stopped because all used more memory than the capacity.";
    text.family("uncia_memory_victims_total", Kind::Counter, help);
    text.sample(&[("state", "cached")], relief.cached());
    text.sample(&[("state", "active")], relief.active());
    let help = "Times that such instances were chosen.";
    text.family("uncia_memory_decisions_total", Kind::Counter, help);
    text.sample(&[], relief.decisions());
    let help = "From the kernel's notices to the choices.";
    text.family("uncia_memory_decision_seconds_total", Kind::Counter, help);
    text.sample(&[], Seconds(relief.total_ns().into()));
    let help = "The longest of these times.";
    text.family("uncia_memory_decision_longest_seconds", Kind::Gauge, help);
    text.sample(&[], Seconds(relief.longest_ns().into()));
}

/// Puts what became of spans, if any are made.
fn put_traces(text: &mut Exposition, traces: Option<&Traces>) {
    let Some(counts) = traces.map(Traces::counts) else { return };
    text.family(
        "uncia_traced_invocations_total",
        Kind::Counter,
        "Invocations whose spans the collector took, and those whose spans were dropped.",
    );
    text.sample(&[("result", "exported")], counts.exported());
    text.sample(&[("result", "dropped")], counts.dropped());
}

fn put_overview(text: &mut Exposition, overview: &Overview) {
    let counts = overview.counts;
    text.family("uncia_instances", Kind::Gauge, "Instances by what they do.");
    // Paused ones are not among those that idle, so that the sum is that of all instances.
    let running = counts.idle.saturating_sub(counts.frozen + counts.scaled_down);
    for (state, count) in [
        ("starting", counts.starting),
        ("busy", counts.busy),
        ("idle", running),
        ("frozen", counts.frozen),
        ("scaled_down", counts.scaled_down),
        ("stopping", counts.stopping),
    ] {
        text.sample(&[("state", state)], count);
    }
    let help = "Requests that wait: for an instance, or to be admitted.";
    text.family("uncia_requests_waiting", Kind::Gauge, help);
    text.sample(&[("for", "instance")], counts.waiting);
    text.sample(&[("for", "admission")], counts.backlog);
}

fn put_functions(text: &mut Exposition, functions: &Functions) {
    let mut put = PerFunction { text, functions: functions.by_name() };
    put.text.family("uncia_invocations_total", Kind::Counter, "Invocations that ended.");
    for (name, totals) in &put.functions {
        for count in &totals.counts {
            let start = count.start.as_deref().unwrap_or("none");
            let labels = [("function", *name), ("outcome", &*count.outcome), ("start", start)];
            put.text.sample(&labels, count.invocations);
        }
    }
    let help = "From the event's delivery to its answer.";
    put.histogram("uncia_execution_seconds", help, |it| &it.execution);
    let help = "From a request's arrival to its delivery, without the start of an instance.";
    put.histogram("uncia_queue_seconds", help, |it| &it.queued);
    let help = "Starts of instances, of the requests that waited for one.";
    put.histogram("uncia_initialization_seconds", help, |it| &it.initialization);
    put.text.family("uncia_cpu_seconds_total", Kind::Counter, "CPU time of invocations.");
    for (name, totals) in &put.functions {
        for (mode, sum) in [("user", totals.cpu_user), ("system", totals.cpu_system)] {
            if let Some(ns) = sum.known() {
                put.text.sample(&[("function", name), ("mode", mode)], Seconds(ns));
            }
        }
    }
    let help = "Time for which CPU limits stopped invocations.";
    put.each("uncia_throttled_seconds_total", Kind::Counter, help, |it| {
        it.throttled.known().map(Seconds)
    });
    let help = "Average memory times execution, of the invocations where both are known.";
    put.each("uncia_memory_byte_seconds_total", Kind::Counter, help, |it| {
        it.memory.known().map(Seconds)
    });
    let help = "The most memory that an invocation used.";
    put.each("uncia_memory_peak_bytes", Kind::Gauge, help, |it| it.memory_peak);
    let help = "Payloads of requests.";
    put.each("uncia_request_bytes_total", Kind::Counter, help, |it| it.request_bytes.known());
    let help = "Payloads of answers.";
    put.each("uncia_response_bytes_total", Kind::Counter, help, |it| it.response_bytes.known());
}

/// Puts families that have samples for each function; what was not measured has none.
struct PerFunction<'a> {
    text: &'a mut Exposition,
    functions: Vec<(&'a str, &'a Totals)>,
}

impl PerFunction<'_> {
    fn each<T: Display>(
        &mut self,
        family: &'static str,
        kind: Kind,
        help: &str,
        value: impl Fn(&Totals) -> Option<T>,
    ) {
        self.text.family(family, kind, help);
        for (name, totals) in &self.functions {
            if let Some(value) = value(totals) {
                self.text.sample(&[("function", name)], value);
            }
        }
    }

    fn histogram(
        &mut self,
        family: &'static str,
        help: &str,
        histogram: impl Fn(&Totals) -> &Histogram,
    ) {
        self.text.family(family, Kind::Histogram, help);
        for (name, totals) in &self.functions {
            let histogram = histogram(totals);
            if histogram.count() == 0 {
                continue;
            }
            for (bound, count) in histogram.cumulative() {
                let bound = Seconds(bound.into()).to_string();
                self.text.suffixed("_bucket", &[("function", name), ("le", &bound)], count);
            }
            let labels = [("function", *name), ("le", "+Inf")];
            self.text.suffixed("_bucket", &labels, histogram.count());
            let labels = [("function", *name)];
            self.text.suffixed("_sum", &labels, Seconds(histogram.sum_ns()));
            self.text.suffixed("_count", &labels, histogram.count());
        }
    }
}
