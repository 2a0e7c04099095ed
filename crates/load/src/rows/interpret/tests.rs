use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::answer::TOO_LONG;
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
    // Other keys, whatever they hold, do not hide it.
    for wrong in [
        r#"{"uncia": {"valid": false, "instance": 7}}"#,
        r#"{"uncia": {"handler_start_ns": 1.7e18, "valid": false}}"#,
        r#"{"message": "a", "Message": "b", "uncia": {"valid": false}}"#,
        r#"{"loss": NaN, "uncia": {"valid": false}}"#,
    ] {
        assert_eq!(outcome(wrong), "function_error", "{wrong}");
    }
    // A stage whose own call has failed answers with what it knows of its hops.
    let failed = r#"{"errorType": "E", "errorMessage": "no", "uncia": {"valid": false}}"#;
    assert_eq!(answered(200, "", failed).0.error.as_deref(), Some("E: no"));
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
fn openwhisk_explains_itself_in_its_own_words() {
    let refused = judged(401, "", r#"{"error": "The supplied authentication is invalid."}"#);
    let sentence = "HTTP 401: The supplied authentication is invalid.";
    assert_eq!(refused, ("transport_error".into(), Some(sentence.into())));
    let raised = judged(502, "", r#"{"error": "ValueError: no"}"#);
    assert_eq!(raised, ("function_error".into(), Some("HTTP 502: ValueError: no".into())));
    let late = r#"{"error": "The action exceeded its time limits of 100 milliseconds."}"#;
    assert_eq!(judged(502, "", late).0, "timeout");
    assert_eq!(judged(502, "", r#"{"error": {"name": "TypeError"}}"#).0, "function_error");
    let (row, _) = answered(202, "X-Openwhisk-Activation-Id: a1", r#"{"activationId": "a1"}"#);
    assert_eq!((row.request_id.as_deref(), &*row.outcome), (Some("a1"), "ok"));
}

/// As `uncia.platforms.openwhisk` reads them from the records of the same activations.
#[test]
fn answers_and_records_of_openwhisk_are_read_alike() {
    let examples = include_str!("../../../../../tests/data/openwhisk-answers.json");
    let examples: Vec<serde_json::Value> = serde_json::from_str(examples).unwrap();
    assert!(!examples.is_empty());
    for example in examples {
        let status = u16::try_from(example["status"].as_u64().unwrap()).unwrap();
        let (outcome, error) = judged(status, "", &example["answer"].to_string());
        assert_eq!(outcome, example["outcome"], "{example}");
        match example["error"].as_str() {
            Some(part) => assert!(error.unwrap().contains(part), "{example}"),
            None => assert_eq!(error, None, "{example}"),
        }
    }
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
    assert_eq!((&*span.name, span.start, span.end, &*span.clock), ("handler", 5, 9, "function"));
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
