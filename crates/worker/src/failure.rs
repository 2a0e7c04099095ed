//! What a function failed with: the error that its runtime reported.

use serde::{Deserialize, Serialize};

use crate::json::well_formed;

/// Longer errors are not understood, only cut.
const MAX_READ_BYTES: usize = 256 << 10;
/// Of a text that is no error's JSON, and of a message.
const MAX_MESSAGE_CHARS: usize = 500;
/// Lines that are kept of each end of a trace: one of them is where it failed, whatever the order.
const TRACE_ENDS: usize = 10;
const MAX_LINE_CHARS: usize = 160;

/// An error, as Lambda's runtimes report it.
#[derive(Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Failure {
    #[serde(rename = "errorType", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(rename = "errorMessage", skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(rename = "stackTrace", alias = "trace", skip_serializing_if = "Option::is_none")]
    trace: Option<Vec<String>>,
}

impl Failure {
    /// Reads the payload of an error; one of another form is a message as it stands.
    pub(crate) fn read(payload: &[u8]) -> Self {
        let is_short = payload.len() <= MAX_READ_BYTES;
        let read: Option<Self> =
            is_short.then(|| serde_json::from_slice(&well_formed(payload)).ok()).flatten();
        let read = read.filter(|it| it.kind.is_some() || it.message.is_some());
        let mut failure = read.unwrap_or_else(|| {
            let start = &payload[..payload.len().min(4 * MAX_MESSAGE_CHARS)];
            let message = String::from_utf8_lossy(start).into_owned();
            Self { message: Some(message), ..Self::default() }
        });
        let cut = |text: &mut String, most: usize| {
            if let Some((end, _)) = text.char_indices().nth(most) {
                text.truncate(end);
            }
        };
        for text in [&mut failure.kind, &mut failure.message].into_iter().flatten() {
            cut(text, MAX_MESSAGE_CHARS);
        }
        if let Some(trace) = &mut failure.trace {
            *trace = trace.iter().flat_map(|it| it.lines()).map(str::to_owned).collect();
            let lines = trace.len();
            if lines > 2 * TRACE_ENDS + 1 {
                let omitted = format!("... {} lines ...", lines - 2 * TRACE_ENDS);
                trace.splice(TRACE_ENDS..lines - TRACE_ENDS, [omitted]);
            }
            for line in trace {
                cut(line, MAX_LINE_CHARS);
            }
        }
        failure
    }

    /// The error's type.
    pub(crate) fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// Type and message in a line.
    pub(crate) fn sentence(&self) -> String {
        match (&self.kind, &self.message) {
            (Some(kind), Some(message)) => format!("{kind}: {message}"),
            (Some(one), None) | (None, Some(one)) => one.clone(),
            (None, None) => String::new(),
        }
    }

    /// The error in the form in which runtimes report it, of bounded length.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts are JSON")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_of_runtimes_are_read_and_long_traces_keep_both_ends() {
        let payload = json!({"errorType": "KeyError", "errorMessage": "'n'", "requestId": "r",
            "stackTrace": (0..100).map(|line| format!("  line {line}\n")).collect::<Vec<_>>()});
        let failure = Failure::read(payload.to_string().as_bytes());
        assert_eq!(failure.sentence(), "KeyError: 'n'");
        let trace = failure.trace.as_ref().unwrap();
        assert_eq!(trace.len(), 21);
        assert_eq!(
            [&trace[0], &trace[10], &trace[20]],
            ["  line 0", "... 80 lines ...", "  line 99"]
        );
        assert_eq!(Failure::read(&failure.to_json()), failure);
        // Node.js calls it otherwise.
        let node = Failure::read(br#"{"errorType": "Error", "trace": ["Error", "at f"]}"#);
        assert_eq!((node.sentence().as_str(), node.trace.unwrap().len()), ("Error", 2));
    }

    #[test]
    fn what_is_no_error_is_a_message() {
        for payload in ["boom", "[1]", "{\"a\": 1}", "{\"errorType\": 5}", ""] {
            assert_eq!(Failure::read(payload.as_bytes()).sentence(), payload);
        }
    }

    proptest! {
        #[test]
        fn a_header_has_room_for_any_error(
            kind in ".{0,2000}", message in ".{0,2000}",
            trace in prop::collection::vec(".{0,300}", 0..60),
        ) {
            let payload = json!({"errorType": kind, "errorMessage": message, "trace": trace});
            let failure = Failure::read(payload.to_string().as_bytes());
            // Six bytes for each escaped character.
            let most = 6 * (2 * MAX_MESSAGE_CHARS + (2 * TRACE_ENDS + 1) * MAX_LINE_CHARS);
            prop_assert!(failure.to_json().len() < most + 1_000);
        }
    }
}
