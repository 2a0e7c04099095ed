//! Hops: what functions report of the stages of a chain that they, or those after them, have invoked.

use std::collections::HashSet;

use serde::Deserialize;
use uncia_record::{Epoch, Invocation, Span, Text};

use super::interpret::{intervals, text};

/// Of one answer; a chain of so many has a report of megabytes.
const MAX_HOPS: usize = 10_000;
/// Longer names are nobody's.
const MAX_NAME: usize = 256;
const MAX_ERROR_CHARACTERS: usize = 500;
/// Of one hop.
const MAX_SPANS: usize = 100;
/// Of a kernel's name, so much tells it from others.
const KERNEL_CHARACTERS: usize = 8;

/// A hop as functions report it, in the key `uncia` of an answer. Times are Unix time in ns, each by the
/// clock of the function that read it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Hop {
    stage: String,
    function: String,
    /// The id of the request.
    request: String,
    /// The request of the hop that made this one; another, or none: the function that answered.
    parent: String,
    sent_ns: i64,
    received_ns: i64,
    /// The instance that made it, and the kernel that this runs on.
    caller: String,
    caller_kernel: String,
    request_bytes: Option<i64>,
    response_bytes: Option<i64>,
    error: Option<String>,
    handler_start_ns: Option<i64>,
    handler_end_ns: Option<i64>,
    instance: Option<String>,
    fresh: Option<bool>,
    kernel: Option<String>,
    /// Further intervals that the function measured, as of an answer to the client.
    spans: Option<serde_json::Value>,
}

/// Reads the hops of a report; those of another form are the function's own affair.
pub(super) fn read(hops: &serde_json::Value) -> Vec<Hop> {
    let hops = hops.as_array().map(Vec::as_slice).unwrap_or_default();
    let hops = hops.iter().take(MAX_HOPS).filter_map(|hop| Hop::deserialize(hop).ok());
    hops.filter(Hop::is_proper).collect()
}

impl Hop {
    fn is_proper(&self) -> bool {
        let names = [&self.stage, &self.function, &self.request, &self.parent, &self.caller];
        let instance = self.instance.as_deref().unwrap_or_default();
        !self.request.is_empty()
            && instance.len() <= MAX_NAME
            && names.iter().all(|name| name.len() <= MAX_NAME)
    }

    /// The row of the hop, in the chain that begins with `root`.
    fn row(&self, root: &Invocation, is_of_hop: bool) -> Invocation {
        let execution = self.handler_end_ns.zip(self.handler_start_ns);
        let execution = execution.and_then(|(end, start)| end.checked_sub(start));
        let parent = if is_of_hop { &self.parent } else { &root.invocation };
        let error = self.error.as_deref();
        Invocation {
            run: root.run.clone(),
            experiment: root.experiment.clone(),
            platform: root.platform.clone(),
            function: Text::from(&*self.function),
            invocation: self.request.clone(),
            request_id: Some(self.request.clone()),
            attempt: 1,
            parent: Some(parent.clone()),
            stage: Some(Text::from(&*self.stage)),
            request_bytes: self.request_bytes.filter(|bytes| *bytes >= 0),
            response_bytes: self.response_bytes.filter(|bytes| *bytes >= 0),
            outcome: text(if error.is_some() { "function_error" } else { "ok" }),
            error: error.map(|error| error.chars().take(MAX_ERROR_CHARACTERS).collect()),
            start: self.fresh.map(|fresh| text(if fresh { "cold" } else { "warm" })),
            instance: self.instance.as_deref().map(Text::from),
            execution: execution.filter(|duration| *duration >= 0),
            ..Invocation::default()
        }
    }

    /// The call, by the clock of who made it, and the handler by its own.
    fn spans(&self, root: &Invocation, epoch: Epoch) -> impl Iterator<Item = Span> {
        let span = |name: &str, instance: Option<&str>, start: i64, end: i64, kernel: &str| {
            Some(Span {
                run: root.run.clone(),
                invocation: Some(self.request.clone()),
                instance: instance.map(Text::from),
                name: name.into(),
                start: start.checked_sub(epoch.unix_ns())?,
                end: end.checked_sub(epoch.unix_ns())?,
                clock: clock(kernel),
            })
        };
        let call =
            span("call", Some(&self.caller), self.sent_ns, self.received_ns, &self.caller_kernel);
        let kernel = self.kernel.as_deref().unwrap_or_default();
        let handler = self.handler_start_ns.zip(self.handler_end_ns);
        let handler = handler
            .and_then(|(start, end)| span("handler", self.instance.as_deref(), start, end, kernel));
        let further: Vec<Span> = intervals(self.spans.as_ref())
            .iter()
            .take(MAX_SPANS)
            .filter_map(|(name, start, end)| {
                span(name, self.instance.as_deref(), *start, *end, kernel)
            })
            .collect();
        [call, handler].into_iter().flatten().chain(further)
    }
}

/// The clock of functions on a kernel: the times of those on one compare.
fn clock(kernel: &str) -> Text {
    let is_plain = |it: &char| it.is_ascii_alphanumeric();
    let name: String = kernel.chars().filter(is_plain).take(KERNEL_CHARACTERS).collect();
    if name.is_empty() { "function".into() } else { format!("kernel-{name}").into() }
}

/// Makes the rows of hops, each once: several answers may report the same.
#[derive(Debug, Default)]
pub(super) struct Hops {
    seen: HashSet<String>,
}

impl Hops {
    /// The rows and spans of the hops that are new, in the chain that begins with `root`.
    pub(super) fn take(
        &mut self,
        root: &Invocation,
        hops: Vec<Hop>,
        epoch: Epoch,
    ) -> Vec<(Invocation, Vec<Span>)> {
        let hops = hops.into_iter().filter(|hop| self.seen.insert(hop.request.clone()));
        let hops: Vec<Hop> = hops.collect();
        let row = |hop: &Hop| {
            let is_of_hop = self.seen.contains(&hop.parent);
            (hop.row(root, is_of_hop), hop.spans(root, epoch).collect())
        };
        hops.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hop(request: &str, parent: &str) -> serde_json::Value {
        json!({
            "stage": "b", "function": "f", "request": request, "parent": parent, "sent_ns": 1_010,
            "received_ns": 1_050, "caller": "i-1", "caller_kernel": "0123456789-ab",
            "request_bytes": 7, "response_bytes": 9, "handler_start_ns": 1_020,
            "handler_end_ns": 1_040, "instance": "i-2", "fresh": true, "kernel": "0123456789-ab",
        })
    }

    fn root() -> Invocation {
        Invocation {
            experiment: Some("e".into()),
            invocation: "root".to_owned(),
            ..Invocation::default()
        }
    }

    #[test]
    fn each_hop_is_a_row_once_with_its_two_spans() {
        let mut made = Hops::default();
        let epoch = Epoch::from_unix_ns(1_000);
        // The function that answered may know what its own request is called, or not.
        let hops = [hop("r-1", "r-0"), hop("r-2", "r-1"), hop("r-1", "r-0"), hop("r-3", "")];
        let hops = read(&json!(hops));
        let rows = made.take(&root(), hops.clone(), epoch);
        assert!(made.take(&root(), hops, epoch).is_empty());
        let parents: Vec<_> = rows.iter().map(|(row, _)| row.parent.as_deref().unwrap()).collect();
        assert_eq!(parents, ["root", "r-1", "root"]);
        let (row, spans) = &rows[0];
        let texts = (&*row.invocation, &*row.function, row.stage.as_deref(), &*row.outcome);
        assert_eq!(texts, ("r-1", "f", Some("b"), "ok"));
        assert_eq!((row.experiment.as_deref(), row.start.as_deref()), (Some("e"), Some("cold")));
        assert_eq!((row.scheduled, row.sent, row.open_loop), (None, None, None));
        assert_eq!(
            (row.execution, row.request_bytes, row.response_bytes),
            (Some(20), Some(7), Some(9))
        );
        let spans: Vec<_> = spans
            .iter()
            .map(|it| (&*it.name, it.instance.as_deref(), it.start, it.end, &*it.clock))
            .collect();
        assert_eq!(
            spans,
            [
                ("call", Some("i-1"), 10, 50, "kernel-01234567"),
                ("handler", Some("i-2"), 20, 40, "kernel-01234567"),
            ]
        );
    }

    #[test]
    fn what_the_function_measured_besides_is_by_its_own_clock() {
        let mut measured = hop("r-1", "");
        measured["spans"] = json!([["transfer", 1_005, 1_030], ["x".repeat(65), 1_001, 1_002]]);
        let rows =
            Hops::default().take(&root(), read(&json!([measured])), Epoch::from_unix_ns(1_000));
        let (_, spans) = &rows[0];
        assert_eq!(spans.len(), 3);
        let transfer = &spans[2];
        assert_eq!((&*transfer.name, transfer.start, transfer.end), ("transfer", 5, 30));
        let owner = (transfer.instance.as_deref(), &*transfer.clock);
        assert_eq!(owner, (Some("i-2"), "kernel-01234567"));
    }

    #[test]
    fn what_is_no_hop_is_left_out_and_what_failed_says_so() {
        let mut failed = hop("r-1", "");
        failed["error"] = json!("e".repeat(9_999));
        failed["handler_end_ns"] = json!(null);
        failed["caller_kernel"] = json!("");
        let mut long = hop("r-2", "");
        long["stage"] = json!("s".repeat(MAX_NAME + 1));
        let hops = read(&json!([5, {}, hop("", ""), long, failed]));
        let rows = Hops::default().take(&root(), hops, Epoch::UNIX);
        assert_eq!(rows.len(), 1);
        let (row, spans) = &rows[0];
        assert_eq!((&*row.outcome, row.execution), ("function_error", None));
        assert_eq!(row.error.as_ref().unwrap().len(), MAX_ERROR_CHARACTERS);
        assert_eq!((spans.len(), &*spans[0].clock), (1, "function"));
        assert!(read(&json!("hops")).is_empty());
    }
}
