//! What an answer says: by its status, its headers, and the report that a function put into it.

mod headers;
mod outcome;
mod report;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use serde::Deserialize;
use uncia_record::{Epoch, Invocation, Span, Text};

use self::headers::Headers;
use self::outcome::judge;
use self::report::{Answer, trace};
use super::batch::Completion;
use super::hops::{self, Hop};
use crate::http1;

const OUTCOMES: [&str; 6] =
    ["ok", "function_error", "throttled", "timeout", "transport_error", "preempted"];
const STARTS: [&str; 4] = ["cold", "restored", "thawed", "warm"];
/// Longer explanations are cut: an error column is for reading.
const MAX_ERROR_CHARACTERS: usize = 500;
/// Of the output, so many characters.
const MAX_OUTPUT_CHARACTERS: usize = 4_096;
/// Names of spans are repeated in a dictionary, and are for reading.
const MAX_SPAN_NAME: usize = 64;

/// A text that rows repeat; the same each time in memory, too, where it is one of those above.
pub(super) fn text(of: &'static str) -> Text {
    static TEXTS: LazyLock<Vec<Text>> =
        LazyLock::new(|| OUTCOMES.into_iter().chain(STARTS).map(Text::from).collect());
    TEXTS.iter().find(|known| ***known == *of).cloned().unwrap_or_else(|| of.into())
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
    let explained =
        Explained { trace: trace(body), output: output.filter(|text| !text.trim().is_empty()) };
    (explained != Explained::default()).then_some(explained)
}

/// Whether the outcome of a request is `ok`, by the rules of its row.
pub(crate) fn is_ok(completion: &Completion, head: &[u8], body: &[u8]) -> bool {
    let mut row = Invocation::default();
    fill(&mut row, completion, head, body, Epoch::UNIX);
    *row.outcome == *"ok"
}
