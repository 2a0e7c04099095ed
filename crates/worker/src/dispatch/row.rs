//! The log's row of a request.

use std::sync::Arc;

use uncia_policy::{Pause, Rejection};
use uncia_record::{Invocation, Span};

use super::{Birth, Failure, Pending};
use crate::instance::{Outcome, Reply, StartError};
use crate::meterlog::{EventUpdate, Recorded};

const NS_PER_MS: i64 = 1_000_000;
const PLATFORM: &str = "embedded";

/// An invocation that ran, and on what.
pub struct Running<'a> {
    pub birth: &'a Birth,
    /// Whether the instance had served nothing before.
    pub first: bool,
    /// Which pause was undone for this, from when to when.
    pub resumed: Option<(Pause, i64, i64)>,
    pub reply: &'a Reply,
}

/// Billed as Lambda bills: the execution, and the initialization that the request caused, up to
/// whole milliseconds.
fn billed(execution: i64, initialization: i64) -> i64 {
    let used = execution + initialization;
    used + (NS_PER_MS - used % NS_PER_MS) % NS_PER_MS
}

fn base(pending: &Pending) -> Invocation {
    let submission = &pending.submission;
    Invocation {
        platform: Some(Arc::from(PLATFORM)),
        function: submission.function.name.clone(),
        invocation: submission.invocation.clone(),
        request_id: Some(submission.request_id.clone()),
        attempt: submission.attempt,
        parent: submission.parent.clone(),
        request_bytes: i64::try_from(submission.payload.len()).ok(),
        allocated_cpu: i64::try_from(submission.function.cpu_micro()).ok(),
        allocated_memory: i64::try_from(submission.function.memory_bytes()).ok(),
        ..Invocation::default()
    }
}

/// The row of a request that an instance served.
pub fn of_reply(pending: &Pending, running: &Running<'_>) -> Recorded {
    let Running { birth, first, resumed, reply } = *running;
    // The start was this request's own if it waited for it; an instance that was started for
    // another request is warm for this one.
    let cold = first && pending.accepted <= birth.began;
    let initialization = cold.then_some(birth.initialization);
    let execution = reply.ended - reply.started;
    let waited = reply.started - pending.accepted;
    let usage = &reply.usage;
    let (outcome, error) = match &reply.outcome {
        Outcome::Ok(_) => ("ok", None),
        Outcome::FunctionError(payload) => {
            ("function_error", Some(String::from_utf8_lossy(payload).chars().take(512).collect()))
        }
        Outcome::Timeout => {
            let limit = pending.submission.function.timeout().as_secs_f64();
            ("timeout", Some(format!("Task timed out after {limit:.2} seconds")))
        }
        Outcome::Exited(how) => {
            ("function_error", Some(format!("Runtime exited with error: {how}")))
        }
        Outcome::OutOfMemory => ("function_error", Some("Runtime.OutOfMemory".to_owned())),
        Outcome::ResponseTooLarge(bytes) => {
            ("function_error", Some(format!("the response of {bytes} bytes is too large")))
        }
    };
    let mut spans = if cold { birth.spans.clone() } else { Vec::new() };
    if let Some((how, start, end)) = resumed {
        spans.push(Span {
            instance: Some(birth.name.clone()),
            name: Arc::from(match how {
                Pause::Freeze => "thaw",
                Pause::ScaleDown => "scale_up",
            }),
            start,
            end,
            clock: Arc::from("platform"),
            ..Span::default()
        });
    }
    for span in &mut spans {
        span.invocation = Some(pending.submission.invocation.clone());
    }
    let row = Invocation {
        response_bytes: match &reply.outcome {
            Outcome::Ok(payload) | Outcome::FunctionError(payload) => {
                i64::try_from(payload.len()).ok()
            }
            Outcome::ResponseTooLarge(bytes) => i64::try_from(*bytes).ok(),
            _ => None,
        },
        outcome: Arc::from(outcome),
        error,
        start: Some(Arc::from(match (cold, resumed) {
            (true, _) => "cold",
            (false, Some((Pause::Freeze, ..))) => "thawed",
            (false, _) => "warm",
        })),
        instance: Some(birth.name.clone()),
        shared: Some(false),
        started: Some(reply.started),
        ended: Some(reply.ended),
        queued: Some((waited - initialization.unwrap_or(0)).max(0)),
        initialization,
        execution: Some(execution),
        billed: Some(billed(execution, initialization.unwrap_or(0))),
        cpu_user: usage.cpu_user_ns,
        cpu_system: usage.cpu_system_ns,
        memory_avg: usage.memory_avg,
        memory_peak: usage.memory_peak,
        throttled_count: usage.throttled_count,
        throttled_time: usage.throttled_ns,
        ..base(pending)
    };
    let ok = matches!(reply.outcome, Outcome::Ok(_));
    Recorded { row, spans, idle: None, event: event_update(pending, ok, true) }
}

/// What an attempt means for the accepted event that it was an attempt of.
fn event_update(pending: &Pending, ok: bool, ran: bool) -> Option<EventUpdate> {
    let event = pending.submission.event?;
    let (id, attempt, failures) = (event.id, pending.submission.attempt, event.failures + 1);
    Some(match ran {
        true if ok || event.last => EventUpdate::Done { id },
        true => EventUpdate::Failed { id, attempt, failures },
        false => EventUpdate::Attempted { id, attempt },
    })
}

/// The row of a request that no instance served; a failed start is in it with its duration.
pub fn of_refusal(pending: &Pending, reason: Rejection, failure: Option<&Failure>) -> Recorded {
    let (outcome, error) = match (reason, failure) {
        (_, Some(Failure { error: StartError::Sandbox(reason), .. })) => {
            ("transport_error", format!("the sandbox could not be made: {reason}"))
        }
        (_, Some(Failure { error: error @ StartError::Timeout(_), .. })) => {
            ("timeout", error.to_string())
        }
        (_, Some(failure)) => ("function_error", failure.error.to_string()),
        (Rejection::FunctionLimit, None) => {
            ("throttled", "the function's concurrency limit is reached".to_owned())
        }
        (Rejection::WorkerLimit, None) => {
            ("throttled", "the platform's concurrency limit is reached".to_owned())
        }
        (Rejection::StartFailed(_), None) => {
            ("transport_error", "the instance could not be started".to_owned())
        }
        (Rejection::NoFunction, None) => ("transport_error", "the function was deleted".to_owned()),
        (Rejection::ShuttingDown, None) => {
            ("transport_error", "the platform is shutting down".to_owned())
        }
    };
    let birth = failure.map(|failure| &failure.birth);
    let mut spans = birth.map_or_else(Vec::new, |birth| birth.spans.clone());
    for span in &mut spans {
        span.invocation = Some(pending.submission.invocation.clone());
    }
    let row = Invocation {
        outcome: Arc::from(outcome),
        error: Some(error),
        start: birth.map(|_| Arc::from("cold")),
        instance: birth.map(|birth| birth.name.clone()),
        initialization: birth.map(|birth| birth.initialization),
        ..base(pending)
    };
    let ran = failure.is_some_and(|failure| !matches!(failure.error, StartError::Sandbox(_)));
    Recorded { row, spans, idle: None, event: event_update(pending, false, ran) }
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
