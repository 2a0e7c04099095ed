//! The log's row of a request.

use std::sync::Arc;

use uncia_policy::{Pause, Rejection};
use uncia_record::{Invocation, Span};

use super::instances::InstanceState;
use super::message::{Preemption, Resume};
use super::requests::PendingRequest;
use crate::failure::Failure;
use crate::function::Function;
use crate::instance::{MAX_ANSWER, Outcome, Reply, StartError, Usage};
use crate::meterlog::Recorded;

/// What the column `platform` says.
pub(super) const PLATFORM: &str = "embedded";

const NS_PER_MS: i64 = 1_000_000;

/// Longest error that a row carries, in characters.
const MAX_ERROR_CHARS: usize = 512;

/// A request that an instance was given, and what came of it.
pub(super) struct Execution<'a> {
    pub instance: &'a InstanceState,
    pub reply: &'a Reply,
    /// The pause that was undone for it.
    pub resume: Option<Resume>,
    /// Why the platform ended it, if it did.
    pub interruption: Option<Interruption>,
    /// Whether the platform counts what is reserved.
    pub counts: bool,
}

/// Why the platform ended an instance that served a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interruption {
    /// For the sake of others.
    Preempted(Preemption),
    /// The platform stops, and its time to wait is over.
    Stopped,
}

/// Billed as Lambda bills: the execution, and the initialization that the request caused, up to
/// whole milliseconds.
fn billed(execution: i64, initialization: i64) -> i64 {
    let used = execution + initialization;
    used + (NS_PER_MS - used % NS_PER_MS) % NS_PER_MS
}

/// What every row of a request says, with what an instance of `function` is allocated.
fn base(request: &PendingRequest, function: &Function) -> Invocation {
    let mut row = Invocation {
        platform: Some(Arc::from(PLATFORM)),
        function: function.name.clone(),
        invocation: request.invocation.to_string(),
        request_id: Some(request.request_id.to_string()),
        attempt: request.attempt,
        parent: request.parent.as_deref().map(str::to_owned),
        stage: request.stage.clone(),
        request_bytes: request_bytes(request),
        allocated_cpu: i64::try_from(function.cpu_micro()).ok(),
        allocated_memory: i64::try_from(function.memory_bytes()).ok(),
        ..Invocation::default()
    };
    function.describe(&mut row);
    row
}

/// The size of a request's body; of one that was passed on, as much as came from the client.
fn request_bytes(request: &PendingRequest) -> Option<i64> {
    let passed = request.passage.as_ref().map_or(0, |passage| passage.received());
    i64::try_from(request.payload_bytes as u64 + passed).ok()
}

/// The size of an answer's body; of one that was passed on, as much as the client was given.
fn response_bytes(request: &PendingRequest, outcome: &Outcome) -> Option<i64> {
    let passed = request.passage.as_ref().filter(|passage| passage.has_begun());
    if let Some(passage) = passed {
        return i64::try_from(passage.sent()).ok();
    }
    let bytes = match outcome {
        Outcome::Ok(payload) | Outcome::FunctionError(payload) => payload.len() as u64,
        Outcome::Answered(answer) => answer.body.as_ref()?.len() as u64,
        Outcome::ResponseTooLarge(bytes) => *bytes,
        _ => return None,
    };
    i64::try_from(bytes).ok()
}

/// What every row of a request says that an instance was started for or given: the instance is of
/// the function as that was when it started.
fn on_instance(request: &PendingRequest, instance: &InstanceState) -> Invocation {
    Invocation {
        instance: Some(instance.name.clone()),
        worker: instance.worker_name.clone(),
        ..base(request, &instance.function)
    }
}

/// What the policies learn of an invocation's use.
pub(super) fn usage(usage: &Usage) -> uncia_policy::Usage {
    let whole = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
    let cpu = usage.cpu_user_ns.zip(usage.cpu_system_ns).map(|(user, system)| user + system);
    uncia_policy::Usage {
        cpu: whole(cpu),
        memory: whole(usage.memory_avg),
        ..uncia_policy::Usage::default()
    }
}

/// The outcome as the log has it, and its error.
fn outcome(execution: &Execution<'_>) -> (&'static str, Option<String>) {
    match execution.interruption {
        Some(Interruption::Preempted(why)) => {
            let why = match why {
                Preemption::Room => "stopped for the sake of another request",
                Preemption::Memory => "stopped because instances used more memory than there is",
            };
            return ("preempted", Some(why.to_owned()));
        }
        Some(Interruption::Stopped) => {
            return ("transport_error", Some("the platform was stopped while it ran".to_owned()));
        }
        None => {}
    }
    match &execution.reply.outcome {
        Outcome::Ok(_) | Outcome::Passed => ("ok", None),
        Outcome::ClientGone(how) => ("transport_error", Some(how.to_string())),
        Outcome::WorkerLost(how) => ("transport_error", Some(how.clone())),
        Outcome::Answered(answer) if answer.is_failure() => (
            "function_error",
            Some(format!("the server answered with HTTP status {}", answer.status.as_u16())),
        ),
        Outcome::Answered(_) => ("ok", None),
        Outcome::NotHttp(how) => ("function_error", Some(how.clone())),
        Outcome::FunctionError(payload) => {
            ("function_error", Some(Failure::read(payload).sentence()))
        }
        Outcome::Timeout | Outcome::GivenUp => {
            let limit = execution.instance.function.timeout().as_secs_f64();
            ("timeout", Some(format!("Task timed out after {limit:.2} seconds")))
        }
        Outcome::Late(who) => {
            let limit = execution.instance.function.timeout().as_secs_f64();
            let error =
                format!("Task timed out after {limit:.2} seconds: {who} had not done its work");
            ("timeout", Some(error))
        }
        Outcome::Extension { kind, message } => {
            ("function_error", Some(format!("{kind}: {message}")))
        }
        Outcome::Exited(how) => {
            ("function_error", Some(format!("Runtime exited with error: {how}")))
        }
        Outcome::OutOfMemory => ("function_error", Some("Runtime.OutOfMemory".to_owned())),
        Outcome::ResponseTooLarge(bytes) => {
            let error = format!(
                "the response of {bytes} bytes is too large: {MAX_ANSWER} pass unless it is \
                 streamed, and what is larger belongs into a store"
            );
            ("function_error", Some(error))
        }
    }
}

/// The row of a request that an instance was given.
pub(super) fn of_reply(request: &PendingRequest, execution: &Execution<'_>) -> Recorded {
    let Execution { instance, reply, resume, .. } = *execution;
    // The start was this request's own if it waited for it; an instance that was started for
    // another request is warm for this one.
    // Of several that waited for it, the first that ends.
    let is_first = instance.invocations == 0 || reply.shared && !instance.is_start_told;
    let cold = is_first && instance.began.since(request.accepted) >= 0;
    let initialization = instance.start_ns.filter(|_| cold);
    let execution_ns = reply.ended.since(reply.started).max(0);
    let waited = reply.started.since(request.accepted);
    let usage = &reply.usage;
    let (outcome, error) = outcome(execution);
    let mut spans = if cold { instance.spans.clone() } else { Vec::new() };
    if let Some(resume) = resume {
        let start = resume.start.unix();
        spans.push(Span {
            instance: Some(instance.name.clone()),
            name: Arc::from(match resume.pause {
                Pause::Freeze => "thaw",
                Pause::ScaleDown => "scale_up",
            }),
            start,
            end: start + resume.end.since(resume.start),
            clock: Arc::from("platform"),
            ..Span::default()
        });
    }
    if let Some((start, end)) = reply.extensions {
        spans.push(Span {
            instance: Some(instance.name.clone()),
            name: Arc::from("extensions"),
            start: start.unix(),
            end: start.unix() + end.since(start),
            clock: Arc::from("platform"),
            ..Span::default()
        });
    }
    let row = Invocation {
        response_bytes: response_bytes(request, &reply.outcome),
        outcome: Arc::from(outcome),
        error,
        start: Some(Arc::from(match (cold, resume.map(|resume| resume.pause)) {
            (true, _) => instance.start_word(),
            (false, Some(Pause::Freeze)) => "thawed",
            (false, _) => "warm",
        })),
        shared: Some(reply.shared),
        started: Some(reply.started.unix()),
        ended: Some(reply.started.unix() + execution_ns),
        queued: Some((waited - initialization.unwrap_or(0)).max(0)),
        initialization,
        execution: Some(execution_ns),
        // What the platform itself ended is not billed.
        billed: Some(match execution.interruption {
            Some(_) => 0,
            None => billed(execution_ns, initialization.unwrap_or(0)),
        }),
        cpu_user: usage.cpu_user_ns,
        cpu_system: usage.cpu_system_ns,
        memory_avg: usage.memory_avg,
        memory_peak: usage.memory_peak,
        throttled_count: usage.throttled_count,
        throttled_time: usage.throttled_ns,
        borrowed_cpu_time: usage.borrowed_ns,
        lent_cpu_time: usage.lent_ns,
        lent_memory_avg: usage.lent_memory,
        services: reply.services.clone(),
        cpu_wait: usage.cpu_wait_ns,
        page_faults: usage.events.page_faults,
        context_switches: usage.events.context_switches,
        cycles: usage.events.cycles,
        instructions: usage.events.instructions,
        branch_misses: usage.events.branch_misses,
        llc_misses: usage.events.llc_misses,
        ..on_instance(request, instance)
    };
    let row = if execution.counts { with_reservation(row) } else { row };
    recorded(without_what_was_lost(row, &reply.outcome), spans)
}

/// Marks the row of an event's attempt: nobody waits for it, be it that its parent ends later. How long it
/// waited is a span of it.
pub(super) fn mark_event(recorded: &mut Recorded) {
    let row = &recorded.row;
    let Some(started) = row.started else { return };
    recorded.spans.push(Span {
        invocation: Some(row.invocation.clone()),
        instance: row.instance.clone(),
        name: Arc::from("event"),
        start: started - row.queued.unwrap_or(0) - row.initialization.unwrap_or(0),
        end: started,
        clock: Arc::from(PLATFORM),
        ..Span::default()
    });
}

/// Of what went with its worker nobody knows how long it ran, and nobody pays for it.
fn without_what_was_lost(row: Invocation, outcome: &Outcome) -> Invocation {
    match outcome {
        Outcome::WorkerLost(_) => {
            Invocation { execution: None, billed: Some(0), reserved_cpu_time: None, ..row }
        }
        _ => row,
    }
}

/// Has a row say what is reserved where its function leaves that to the defaults, and for how long it was.
fn with_reservation(row: Invocation) -> Invocation {
    let reserved_cpu = row.reserved_cpu.or(row.allocated_cpu);
    let time = reserved_cpu
        .zip(row.execution)
        .and_then(|(micro, ns)| i64::try_from(i128::from(micro) * i128::from(ns) / 1_000_000).ok());
    Invocation {
        reserved_cpu,
        spot_cpu: row.spot_cpu.or(Some(0)),
        preemptible: row.preemptible.or(Some(false)),
        qos: row.qos.or_else(|| Some("interactive".into())),
        // What several requests had together is no single one's.
        reserved_cpu_time: time.filter(|_| row.shared != Some(true)),
        ..row
    }
}

/// The row of a request that was turned away.
pub(super) fn rejected(request: &PendingRequest, reason: Rejection) -> Recorded {
    let (outcome, error) = match reason {
        Rejection::FunctionLimit => ("throttled", "the function's concurrency limit is reached"),
        Rejection::WorkerLimit => ("throttled", "the platform's concurrency limit is reached"),
        Rejection::TooLarge => {
            ("transport_error", "its instances are larger than the platform's capacity")
        }
        Rejection::StartFailed(_) => ("transport_error", "the instance could not be started"),
        Rejection::NoFunction => ("transport_error", "the function was deleted"),
        Rejection::ShuttingDown => ("transport_error", "the platform is shutting down"),
    };
    let error = Some(error.to_owned());
    recorded(
        Invocation { outcome: Arc::from(outcome), error, ..base(request, &request.function) },
        Vec::new(),
    )
}

/// The row of a request whose instance did not become ready.
pub(super) fn not_ready(
    request: &PendingRequest,
    instance: &InstanceState,
    error: &StartError,
) -> Recorded {
    let outcome = match error {
        StartError::Sandbox(_) | StartError::Package(_) => "transport_error",
        StartError::Timeout(_) => "timeout",
        _ => "function_error",
    };
    let row = Invocation {
        outcome: Arc::from(outcome),
        error: Some(error.to_string()),
        start: Some(Arc::from(instance.start_word())),
        initialization: instance.start_ns,
        ..on_instance(request, instance)
    };
    recorded(row, instance.spans.clone())
}

/// The row of a request whose instances ended each time before they were given it.
pub(super) fn never_delivered(
    request: &PendingRequest,
    instance: &InstanceState,
    error: &str,
) -> Recorded {
    let row = Invocation {
        outcome: Arc::from("function_error"),
        error: Some(format!("Runtime exited with error: {error}")),
        ..on_instance(request, instance)
    };
    recorded(row, Vec::new())
}

fn recorded(mut row: Invocation, mut spans: Vec<Span>) -> Recorded {
    row.error = row.error.map(|error| error.chars().take(MAX_ERROR_CHARS).collect());
    for span in &mut spans {
        span.invocation = Some(row.invocation.clone());
    }
    Recorded { row, spans, ..Recorded::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn billed_durations_are_whole_milliseconds() {
        assert_eq!(billed(1, 0), NS_PER_MS);
        assert_eq!(billed(NS_PER_MS, 0), NS_PER_MS);
        assert_eq!(billed(2_007_000_000, 1), 2_008 * NS_PER_MS);
        assert_eq!(billed(0, 0), 0);
    }
}
