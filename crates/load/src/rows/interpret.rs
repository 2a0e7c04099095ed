//! What an answer says: by its status, its headers, and the report that a function put into it.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use uncia_record::{Epoch, Invocation, Span, Text};

use super::batch::Completion;
use super::hops::{self, Hop};
use crate::answer::TOO_LONG;
use crate::http1;
use crate::picker::MAX_REPORT_BYTES;

const OUTCOMES: [&str; 6] =
    ["ok", "function_error", "throttled", "timeout", "transport_error", "preempted"];
const STARTS: [&str; 4] = ["cold", "restored", "thawed", "warm"];
const TOO_MANY_REQUESTS: u16 = 429;
/// Longer explanations are cut: an error column is for reading.
const MAX_ERROR_CHARACTERS: usize = 500;
/// Of a trace, so many lines are kept at most, and of the output so many characters.
const MAX_TRACE_LINES: usize = 40;
const MAX_OUTPUT_CHARACTERS: usize = 4_096;
/// No header that says something here has a longer name.
const LONGEST_NAME: usize = 32;
/// Names of spans are repeated in a dictionary, and are for reading.
const MAX_SPAN_NAME: usize = 64;
/// How AWS Lambda words a timeout, which it reports as an error of the function.
const LAMBDA_TIMEOUT: &str = "Task timed out after";

/// The part of a function's JSON answer that is about the invocation itself.
#[derive(Debug, Default, Deserialize)]
struct Report {
    fresh: Option<bool>,
    instance: Option<String>,
    handler_start_ns: Option<i64>,
    handler_end_ns: Option<i64>,
    /// Whether the function's own check of its output passed.
    valid: Option<bool>,
    /// Further intervals that the function measured, in Unix time: a list of [name, start, end]. Of
    /// another form, it is the function's own affair.
    spans: Option<serde_json::Value>,
    /// What it has invoked as a stage of a chain, and what that has: see [`hops`].
    hops: Option<serde_json::Value>,
}

/// The keys of an answer that matter; a function's own are passed over without being kept.
#[derive(Debug, Default, Deserialize)]
#[serde(bound = "R: Deserialize<'de>, S: Deserialize<'de>")]
struct Keys<R, S> {
    uncia: Option<R>,
    #[serde(rename = "errorType")]
    error_type: Option<S>,
    #[serde(rename = "errorMessage")]
    error_message: Option<S>,
    #[serde(alias = "Message")]
    message: Option<S>,
}

type Answer = Keys<Report, String>;

/// A value of the right form, or another. Functions may use the keys for something else; that is no
/// error.
struct Lenient<T>(Option<T>);

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        Ok(Self(serde_json::from_value(value).ok()))
    }
}

impl Answer {
    fn read(body: &[u8]) -> Self {
        // Almost every answer has the right form, and is read several times as fast that way.
        serde_json::from_slice(body).unwrap_or_else(|_| Self::read_leniently(body))
    }

    fn read_leniently(body: &[u8]) -> Self {
        type Found = Keys<Lenient<Report>, Lenient<String>>;
        serde_json::from_slice(body).map_or_else(
            |_| Self::default(),
            |found: Found| Self {
                uncia: found.uncia.and_then(|value| value.0),
                error_type: found.error_type.and_then(|value| value.0),
                error_message: found.error_message.and_then(|value| value.0),
                message: found.message.and_then(|value| value.0),
            },
        )
    }

    fn explanation(&self) -> Option<String> {
        match (&self.error_type, &self.error_message) {
            (Some(kind), Some(message)) => Some(format!("{kind}: {message}")),
            (Some(one), None) | (None, Some(one)) => Some(one.clone()),
            (None, None) => self.message.clone(),
        }
    }
}

/// A text that rows repeat; the same each time in memory, too, where it is one of those above.
pub(super) fn text(of: &'static str) -> Text {
    static TEXTS: LazyLock<Vec<Text>> =
        LazyLock::new(|| OUTCOMES.into_iter().chain(STARTS).map(Text::from).collect());
    TEXTS.iter().find(|known| ***known == *of).cloned().unwrap_or_else(|| of.into())
}

/// Where a function failed: lines of a trace, as Lambda's runtimes name them.
#[derive(Default, Deserialize)]
struct Trace {
    #[serde(rename = "stackTrace", alias = "trace")]
    lines: Option<Lenient<Vec<String>>>,
}

impl Trace {
    fn read(body: &[u8]) -> Vec<String> {
        let trace: Self = serde_json::from_slice(body).unwrap_or_default();
        let lines = trace.lines.and_then(|lines| lines.0).unwrap_or_default();
        let lines = lines.iter().flat_map(|line| line.lines());
        let lines = lines.map(|line| line.chars().take(MAX_ERROR_CHARACTERS).collect());
        lines.take(MAX_TRACE_LINES).collect()
    }
}

/// Why an invocation failed, beyond the column `error`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Explained {
    pub trace: Vec<String>,
    /// The end of what the function wrote.
    pub output: Option<String>,
}

/// What an answer says of its invocation besides the columns.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Reported {
    pub handler: Option<Span>,
    pub further: Vec<Span>,
    pub hops: Vec<Hop>,
    /// Of a failed invocation whose answer has a trace or an output.
    pub explained: Option<Explained>,
}

/// Fills the columns that depend on the answer; returns the spans that the function reported.
pub(super) fn fill(
    row: &mut Invocation,
    completion: &Completion,
    head: &[u8],
    body: &[u8],
    epoch: Epoch,
) -> Reported {
    let mut headers = Headers::default();
    if !head.is_empty() {
        http1::header(head, |name, value| headers.see(row, name, value, epoch));
    }
    // A function's URL says the cause in a header, as the body is the same for all errors.
    let body = headers.error.as_deref().unwrap_or(body);
    let answer = if body.is_empty() { Answer::default() } else { Answer::read(body) };
    let (outcome, error) = match (&completion.failure, completion.status) {
        (Some(failure), _) => (failure.outcome(), Some(failure.to_string())),
        (None, Some(status)) => judge(status, &headers, &answer, body),
        (None, None) => unreachable!("a request ends with an answer or a failure"),
    };
    row.outcome = text(outcome);
    row.error = error.map(|text| text.chars().take(MAX_ERROR_CHARACTERS).collect());
    let explained = (outcome != "ok").then(|| explain(body, &headers)).flatten();
    let Some(report) = answer.uncia else {
        return Reported { explained, ..Reported::default() };
    };
    if row.start.is_none() {
        row.start = report.fresh.map(|fresh| text(if fresh { "cold" } else { "warm" }));
    }
    if row.instance.is_none() {
        row.instance = report.instance.map(Text::from);
    }
    let span = |name: &str, start: i64, end: i64| {
        Some(Span {
            run: row.run.clone(),
            invocation: Some(row.invocation.clone()),
            instance: row.instance.clone(),
            name: name.into(),
            start: start.checked_sub(epoch.unix_ns())?,
            end: end.checked_sub(epoch.unix_ns())?,
            clock: "function".into(),
        })
    };
    let handler = report.handler_start_ns.zip(report.handler_end_ns);
    if row.execution.is_none() {
        // By the function's own clock, where the platform says nothing.
        let handler = handler.and_then(|(start, end)| end.checked_sub(start));
        row.execution = handler.filter(|duration| *duration >= 0);
    }
    let handler = handler.and_then(|(start, end)| span("handler", start, end));
    let further = intervals(report.spans.as_ref());
    let further =
        further.iter().filter_map(|(name, start, end)| span(name, *start, *end)).collect();
    let hops = report.hops.as_ref().map(hops::read).unwrap_or_default();
    Reported { handler, further, hops, explained }
}

/// Reads the intervals that a function reports; those of another form are its own affair.
pub(super) fn intervals(spans: Option<&serde_json::Value>) -> Vec<(String, i64, i64)> {
    let intervals = spans.map(Vec::<(String, i64, i64)>::deserialize).and_then(Result::ok);
    let mut intervals = intervals.unwrap_or_default();
    intervals.retain(|(name, ..)| name.len() <= MAX_SPAN_NAME);
    intervals
}

fn explain(body: &[u8], headers: &Headers) -> Option<Explained> {
    let output = headers.output.as_ref().map(|text| String::from_utf8_lossy(text).into_owned());
    let output = output.map(|text| {
        let excess = text.chars().count().saturating_sub(MAX_OUTPUT_CHARACTERS);
        text.chars().skip(excess).collect::<String>()
    });
    let explained = Explained {
        trace: Trace::read(body),
        output: output.filter(|text| !text.trim().is_empty()),
    };
    (explained != Explained::default()).then_some(explained)
}

/// Whether the outcome of a request is `ok`, by the rules of its row.
pub(crate) fn is_ok(completion: &Completion, head: &[u8], body: &[u8]) -> bool {
    let mut row = Invocation::default();
    fill(&mut row, completion, head, body, Epoch::UNIX);
    *row.outcome == *"ok"
}

/// Headers that do not go straight into a column.
#[derive(Debug, Default)]
struct Headers {
    function_error: Option<String>,
    outcome: Option<&'static str>,
    /// The function's error as JSON, as Lambda's Invoke has it in the body.
    error: Option<Vec<u8>>,
    /// The end of what the function wrote.
    output: Option<Vec<u8>>,
}

impl Headers {
    fn see(&mut self, row: &mut Invocation, name: &str, value: &[u8], epoch: Epoch) {
        let Ok(value) = std::str::from_utf8(value) else {
            return;
        };
        let mut buffer = [0; LONGEST_NAME];
        let Some(name) = lowercase(name, &mut buffer) else {
            return;
        };
        // What is no number was not measured.
        let number = || value.parse::<i64>().ok();
        let time = || number().and_then(|unix| unix.checked_sub(epoch.unix_ns()));
        let Some(key) = name.strip_prefix("x-uncia-") else {
            match name {
                "x-amzn-requestid" => row.request_id = Some(value.to_owned()),
                "x-amz-function-error" => self.function_error = Some(value.to_owned()),
                "x-amz-log-result" => self.output = STANDARD.decode(value).ok(),
                _ => {}
            }
            return;
        };
        match key {
            "outcome" => self.outcome = OUTCOMES.into_iter().find(|outcome| *outcome == value),
            "start" => {
                row.start = STARTS.into_iter().find(|start| *start == value).map(text);
            }
            "instance" => row.instance = (!value.is_empty()).then(|| Text::from(value)),
            "queued-ns" => row.queued = number(),
            "initialization-ns" => row.initialization = number(),
            "execution-ns" => row.execution = number(),
            "billed-ns" => row.billed = number(),
            "error" => self.error = STANDARD.decode(value).ok(),
            "log-tail" => self.output = STANDARD.decode(value).ok(),
            "cpu-user-ns" => row.cpu_user = number(),
            "cpu-system-ns" => row.cpu_system = number(),
            "allocated-cpu" => row.allocated_cpu = number().or(row.allocated_cpu),
            "allocated-memory" => row.allocated_memory = number().or(row.allocated_memory),
            "memory-avg" => row.memory_avg = number(),
            "memory-peak" => row.memory_peak = number(),
            "throttled-count" => row.throttled_count = number(),
            "throttled-ns" => row.throttled_time = number(),
            "started-unix-ns" => row.started = time(),
            "ended-unix-ns" => row.ended = time(),
            _ => {}
        }
    }
}

/// The name in lower case, unless it is longer than every name that matters.
fn lowercase<'a>(name: &str, buffer: &'a mut [u8; LONGEST_NAME]) -> Option<&'a str> {
    let buffer = buffer.get_mut(..name.len())?;
    buffer.copy_from_slice(name.as_bytes());
    buffer.make_ascii_lowercase();
    std::str::from_utf8(buffer).ok()
}

fn judge(
    status: u16,
    headers: &Headers,
    answer: &Answer,
    body: &[u8],
) -> (&'static str, Option<String>) {
    let message = answer.error_message.as_deref().unwrap_or_default();
    let by_answer = match (status, &headers.function_error) {
        (_, Some(_)) if message.contains(LAMBDA_TIMEOUT) => "timeout",
        (_, Some(_)) => "function_error",
        (200..=299, None) => "ok",
        (TOO_MANY_REQUESTS, _) => "throttled",
        (500..=599, _) => "function_error",
        _ => "transport_error",
    };
    let outcome = headers.outcome.unwrap_or(by_answer);
    if outcome == "ok" {
        // An answer in time is worth nothing if it is wrong.
        return match &answer.uncia {
            // Whether the answer is right would be in there.
            None if body == TOO_LONG => (
                "function_error",
                Some(format!(
                    "the key uncia is longer than {MAX_REPORT_BYTES} bytes, and is not read"
                )),
            ),
            Some(Report { valid: Some(false), .. }) => (
                "function_error",
                Some("the function's own check says that its output is wrong".to_owned()),
            ),
            _ => (outcome, None),
        };
    }
    let said = match &headers.function_error {
        Some(kind) => kind.clone(),
        None => format!("HTTP {status}"),
    };
    let explanation = answer.explanation().or_else(|| {
        let text = String::from_utf8_lossy(body);
        let is_text = !text.trim().is_empty() && !text.starts_with('{');
        is_text.then(|| text.split_whitespace().collect::<Vec<_>>().join(" "))
    });
    let note = match status {
        300..=399 if explanation.is_none() => Some("redirects are not followed".to_owned()),
        _ => explanation,
    };
    (outcome, Some(note.map_or(said.clone(), |note| format!("{said}: {note}"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Entry;
    use crate::rows::failure::Failure;

    fn answered(status: u16, head: &str, body: &str) -> (Invocation, Option<Span>) {
        let (row, reported) = answered_in_full(status, head, body);
        (row, reported.handler)
    }

    fn answered_in_full(status: u16, head: &str, body: &str) -> (Invocation, Reported) {
        let mut completion =
            Completion::new(Entry { at: 0, stream: 0, number: 0, burst: None }, Some(0), 0);
        completion.status = Some(status);
        let mut row = Invocation { invocation: "i".to_owned(), ..Invocation::default() };
        let head = if head.is_empty() {
            String::new()
        } else {
            format!("HTTP/1.1 {status} X\r\n{head}\r\n\r\n")
        };
        let epoch = Epoch::from_unix_ns(1_000);
        let reported = fill(&mut row, &completion, head.as_bytes(), body.as_bytes(), epoch);
        (row, reported)
    }

    fn judged(status: u16, head: &str, body: &str) -> (String, Option<String>) {
        let (row, _) = answered(status, head, body);
        (row.outcome.to_string(), row.error)
    }

    #[test]
    fn sizes_are_the_answers_or_else_what_the_stream_says() {
        let sized = |head: &str| {
            let mut completion =
                Completion::new(Entry { at: 0, stream: 0, number: 0, burst: None }, Some(0), 0);
            completion.status = Some(200);
            let mut row = Invocation {
                allocated_cpu: Some(1),
                allocated_memory: Some(2),
                ..Invocation::default()
            };
            fill(&mut row, &completion, head.as_bytes(), b"", Epoch::UNIX);
            (row.allocated_cpu, row.allocated_memory)
        };
        let head = "HTTP/1.1 200 OK\r\nx-uncia-allocated-cpu: 500000\r\n\
                    x-uncia-allocated-memory: 1024\r\n\r\n";
        assert_eq!(sized(head), (Some(500_000), Some(1_024)));
        assert_eq!(sized(&head.replace("500000", "half")), (Some(1), Some(1_024)));
        assert_eq!(sized(""), (Some(1), Some(2)));
    }

    #[test]
    fn the_execution_is_the_platforms_or_else_the_functions() {
        let body = r#"{"uncia": {"handler_start_ns": 1005, "handler_end_ns": 1009}}"#;
        assert_eq!(answered(200, "", body).0.execution, Some(4));
        assert_eq!(answered(200, "x-uncia-execution-ns: 6", body).0.execution, Some(6));
        let back = body.replace("1009", "1001");
        assert_eq!(answered(200, "", &back).0.execution, None);
    }

    #[test]
    fn failures_are_explained_by_headers_or_the_body() {
        let error = r#"{"errorType": "KeyError", "errorMessage": "'n'", "stackTrace": ["a\nb"]}"#;
        let (encoded, output) = (STANDARD.encode(error), STANDARD.encode("loading\n"));
        let head = format!("x-uncia-error: {encoded}\r\nx-uncia-log-tail: {output}");
        let (row, reported) = answered_in_full(502, &head, "{\"Message\": \"Internal\"}");
        assert_eq!(row.error.as_deref(), Some("HTTP 502: KeyError: 'n'"));
        let explained = reported.explained.unwrap();
        assert_eq!(explained.trace, ["a", "b"]);
        assert_eq!(explained.output.as_deref(), Some("loading\n"));
        let (_, reported) = answered_in_full(200, "x-amz-function-error: Unhandled", error);
        assert_eq!(reported.explained.unwrap().trace, ["a", "b"]);
        for (status, head, body) in [(502, "", "{}"), (200, head.as_str(), "")] {
            assert_eq!(answered_in_full(status, head, body).1.explained, None);
        }
    }

    #[test]
    fn an_answer_that_its_function_calls_wrong_is_an_error_of_the_function() {
        let outcome = |body: &str| answered(200, "", body).0.outcome.to_string();
        assert_eq!(outcome(r#"{"uncia": {"valid": false}}"#), "function_error");
        assert_eq!(outcome(r#"{"uncia": {"valid": true}}"#), "ok");
        assert_eq!(outcome(r#"{"valid": false}"#), "ok");
    }

    #[test]
    fn outcomes_follow_status_and_headers() {
        let ok = |status| judged(status, "", "");
        assert_eq!(ok(200), ("ok".into(), None));
        assert_eq!(ok(204), ("ok".into(), None));
        assert_eq!(ok(503), ("function_error".into(), Some("HTTP 503".into())));
        assert_eq!(ok(302).1.unwrap(), "HTTP 302: redirects are not followed");
        let throttled = judged(429, "", r#"{"Type": "User", "message": "Rate Exceeded."}"#);
        assert_eq!(throttled, ("throttled".into(), Some("HTTP 429: Rate Exceeded.".into())));
        let missing = judged(404, "", "not\n  here");
        assert_eq!(missing, ("transport_error".into(), Some("HTTP 404: not here".into())));
        let raised = r#"{"errorType": "ValueError", "errorMessage": "no"}"#;
        let raised = judged(200, "X-Amz-Function-Error: Unhandled", raised);
        assert_eq!(raised, ("function_error".into(), Some("Unhandled: ValueError: no".into())));
        let late = r#"{"errorMessage": "2026-01-01 1234 Task timed out after 3.00 seconds"}"#;
        assert_eq!(judged(200, "x-amz-function-error: Unhandled", late).0, "timeout");
        assert_eq!(judged(504, "x-uncia-outcome: timeout", "").0, "timeout");
        assert_eq!(judged(504, "x-uncia-outcome: whatever", "").0, "function_error");
        assert_eq!(judged(200, "x-uncia-outcome: preempted", "").0, "preempted");
    }

    #[test]
    fn the_platform_s_headers_become_columns() {
        let head = "x-amzn-RequestId: r-1\r\nX-Uncia-Start: thawed\r\nx-uncia-instance: i-9\r\n\
            x-uncia-queued-ns: 11\r\nx-uncia-execution-ns: 12\r\nx-uncia-billed-ns: 13\r\n\
            x-uncia-cpu-user-ns: 14\r\nx-uncia-cpu-system-ns: 15\r\nx-uncia-memory-avg: 16\r\n\
            x-uncia-memory-peak: 17\r\nx-uncia-throttled-count: 18\r\nx-uncia-throttled-ns: 19\r\n\
            x-uncia-started-unix-ns: 1020\r\nx-uncia-ended-unix-ns: 1032\r\n\
            x-uncia-initialization-ns: fast";
        let (row, span) = answered(200, head, r#"{"uncia": {"fresh": true, "instance": "own"}}"#);
        assert_eq!(span, None);
        let expected = Invocation {
            invocation: "i".to_owned(),
            request_id: Some("r-1".to_owned()),
            outcome: "ok".into(),
            start: Some("thawed".into()),
            instance: Some("i-9".into()),
            queued: Some(11),
            execution: Some(12),
            billed: Some(13),
            cpu_user: Some(14),
            cpu_system: Some(15),
            memory_avg: Some(16),
            memory_peak: Some(17),
            throttled_count: Some(18),
            throttled_time: Some(19),
            started: Some(20),
            ended: Some(32),
            ..Invocation::default()
        };
        assert_eq!(row, expected);
    }

    #[test]
    fn a_function_s_report_fills_what_the_platform_did_not_say() {
        let body = r#"{"sum": [1, {"uncia": 3}], "uncia": {"fresh": false, "instance": "p-1",
            "handler_start_ns": 1005, "handler_end_ns": 1009, "cpu_ns": 4, "valid": true}}"#;
        let (row, span) = answered(200, "", body);
        assert_eq!(row.start.as_deref(), Some("warm"));
        assert_eq!(row.instance.as_deref(), Some("p-1"));
        let span = span.unwrap();
        assert_eq!(
            (&*span.name, span.start, span.end, &*span.clock),
            ("handler", 5, 9, "function")
        );
        assert_eq!(span.invocation.as_deref(), Some("i"));
    }

    #[test]
    fn a_function_may_report_spans_of_its_own() {
        let long = "x".repeat(65);
        let body = format!(
            r#"{{"uncia": {{"instance": "p-1", "handler_start_ns": 1005, "spans":
            [["probe", 1006, 1009], ["throttle", 1007, 1008], ["{long}", 1, 2]]}}}}"#
        );
        let (_, reported) = answered_in_full(200, "", &body);
        assert_eq!(reported.handler, None);
        let found: Vec<_> =
            reported.further.iter().map(|span| (&*span.name, span.start, span.end)).collect();
        assert_eq!(found, [("probe", 6, 9), ("throttle", 7, 8)]);
        let first = &reported.further[0];
        assert_eq!((first.invocation.as_deref(), &*first.clock), (Some("i"), "function"));
        assert_eq!(first.instance.as_deref(), Some("p-1"));
        for other in ["5", "[[1, 2, 3]]", "[[\"a\", 1]]", "{}"] {
            let body = format!(r#"{{"uncia": {{"fresh": true, "spans": {other}}}}}"#);
            let (row, reported) = answered_in_full(200, "", &body);
            assert_eq!((row.start.as_deref(), reported), (Some("cold"), Reported::default()));
        }
    }

    #[test]
    fn a_report_that_is_too_long_is_told() {
        let (outcome, error) = judged(200, "", str::from_utf8(TOO_LONG).unwrap());
        assert_eq!(outcome, "function_error");
        assert!(error.unwrap().contains("longer than 8388608 bytes"));
        let raised = judged(502, "", str::from_utf8(TOO_LONG).unwrap());
        assert_eq!(raised, ("function_error".into(), Some("HTTP 502".into())));
    }

    #[test]
    fn other_uses_of_the_same_keys_are_no_error() {
        for body in ["{\"uncia\": 5, \"message\": [1]}", "{\"uncia\": {}}", "{broken", "{}"] {
            let (row, span) = answered(200, "", body);
            assert_eq!((&*row.outcome, row.start, span), ("ok", None, None), "{body}");
        }
    }

    #[test]
    fn failures_are_told_in_words() {
        let mut completion =
            Completion::new(Entry { at: 0, stream: 0, number: 0, burst: None }, Some(0), 0);
        completion.failure = Some(Failure::TotalTimeout { timeout_ns: 2_000_000_000 }.into());
        let mut row = Invocation::default();
        fill(&mut row, &completion, b"", b"", Epoch::UNIX);
        assert_eq!(&*row.outcome, "timeout");
        assert_eq!(row.error.as_deref(), Some("no complete answer within 2000 ms"));
    }
}
