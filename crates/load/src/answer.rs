//! What is kept of an answer's body, whatever protocol carried it.

use crate::picker::{MAX_REPORT_BYTES, Picker};

/// Longer JSON is kept in part: the members that may have to be understood.
pub(crate) const MAX_WHOLE_BYTES: usize = 64 << 10;
/// What is kept of JSON whose report is too long to be read; no JSON begins like this.
pub(crate) const TOO_LONG: &[u8] = b"{too long";
/// Of an error page that is not JSON, this much is kept to explain the error.
const MAX_ERROR_TEXT_BYTES: usize = 2 << 10;
/// From this status on the body is an explanation.
const FIRST_ERROR_STATUS: u16 = 300;

/// The longest answer of which a later request of a chain can be made: more than any answer of AWS
/// Lambda or the embedded platform has (6 MiB).
pub(crate) const MAX_ANSWER_BYTES: usize = MAX_REPORT_BYTES;

/// An answer that a later request is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Whole {
    Kept(Vec<u8>),
    /// It has more than [`MAX_ANSWER_BYTES`].
    TooLong,
}

/// Which part of a body is kept for interpretation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Nothing but white space has come yet.
    Undecided,
    Json,
    /// Of long JSON.
    Members,
    ErrorText,
    Nothing,
}

/// A body as it comes: all of it is counted, and what may have to be understood is kept.
#[derive(Debug)]
pub(crate) struct Body {
    keep: Keep,
    kept: Vec<u8>,
    picker: Box<Picker>,
    /// All of it, if somebody asked for that.
    whole: Option<Whole>,
    bytes: u64,
}

impl Body {
    pub(crate) fn new() -> Self {
        Self {
            keep: Keep::Undecided,
            kept: Vec::new(),
            picker: Box::default(),
            whole: None,
            bytes: 0,
        }
    }

    /// Keeps all of this body, besides what it keeps of every one.
    pub(crate) fn keep_whole(&mut self) {
        self.whole = Some(Whole::Kept(Vec::new()));
    }

    /// All of the body, if it was to be kept.
    pub(crate) fn take_whole(&mut self) -> Option<Whole> {
        self.whole.take()
    }

    /// Begins a new body.
    pub(crate) fn clear(&mut self) {
        if self.keep == Keep::Members {
            *self.picker = Picker::default();
        }
        self.keep = Keep::Undecided;
        self.kept.clear();
        self.whole = None;
        self.bytes = 0;
    }

    /// Takes the next piece of the body of an answer with this status.
    pub(crate) fn take(&mut self, status: u16, data: &[u8]) {
        self.bytes += data.len() as u64;
        if let Some(Whole::Kept(whole)) = &mut self.whole {
            if whole.len() + data.len() > MAX_ANSWER_BYTES {
                self.whole = Some(Whole::TooLong);
            } else {
                whole.extend_from_slice(data);
            }
        }
        if self.keep == Keep::Undecided {
            let Some(first) = data.iter().find(|byte| !byte.is_ascii_whitespace()) else {
                return;
            };
            self.keep = match first {
                b'{' => Keep::Json,
                _ if status >= FIRST_ERROR_STATUS => Keep::ErrorText,
                _ => Keep::Nothing,
            };
        }
        match self.keep {
            Keep::Json if self.kept.len() + data.len() > MAX_WHOLE_BYTES => {
                self.picker.take(&std::mem::take(&mut self.kept));
                self.picker.take(data);
                self.keep = Keep::Members;
            }
            Keep::Members => self.picker.take(data),
            Keep::Json => self.kept.extend_from_slice(data),
            Keep::ErrorText => {
                let room = MAX_ERROR_TEXT_BYTES - self.kept.len();
                self.kept.extend_from_slice(&data[..room.min(data.len())]);
            }
            Keep::Undecided | Keep::Nothing => {}
        }
    }

    /// What was kept: JSON, of which a long one has only the members that matter; [`TOO_LONG`]; or
    /// the beginning of an error's text.
    pub(crate) fn kept(&self) -> &[u8] {
        match self.keep {
            Keep::Members => self.picker.picked().unwrap_or(TOO_LONG),
            _ => &self.kept,
        }
    }

    pub(crate) fn into_kept(self) -> Vec<u8> {
        match self.keep {
            Keep::Members => self.kept().to_owned(),
            _ => self.kept,
        }
    }

    /// Bytes so far, whether kept or not.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Whether a header of this name is one that platforms speak in: it begins with `x-`.
pub(crate) fn is_extension(name: &[u8]) -> bool {
    name.len() > 2 && name[1] == b'-' && name[0] | 0x20 == b'x'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(status: u16, pieces: &[&str]) -> (String, u64) {
        let mut body = Body::new();
        for piece in pieces {
            body.take(status, piece.as_bytes());
        }
        let bytes = body.bytes();
        (String::from_utf8(body.into_kept()).unwrap(), bytes)
    }

    #[test]
    fn reports_and_explanations_are_kept_and_the_rest_is_counted() {
        assert_eq!(kept(200, &["{\"a\"", ":1}"]), ("{\"a\":1}".to_owned(), 7));
        assert_eq!(kept(200, &[" \n", "{", "}"]), ("{}".to_owned(), 4));
        assert_eq!(kept(200, &["hello", "{}"]), (String::new(), 7));
        assert_eq!(kept(502, &["bad ", "gateway"]), ("bad gateway".to_owned(), 11));
        let long = "e".repeat(3 * MAX_ERROR_TEXT_BYTES / 2);
        let (text, bytes) = kept(500, &[&long, &long]);
        assert_eq!((text.len(), bytes), (MAX_ERROR_TEXT_BYTES, 3 * MAX_ERROR_TEXT_BYTES as u64));
        let json = |spaces| format!("{{\"a\":{}1}}", " ".repeat(spaces));
        let whole = json(MAX_WHOLE_BYTES - json(0).len());
        assert_eq!(kept(200, &[&whole]).0, whole);
        assert_eq!(kept(200, &[&whole, " "]), ("{}".to_owned(), 1 + MAX_WHOLE_BYTES as u64));
    }

    #[test]
    fn of_a_long_answer_the_report_is_kept() {
        let data = "[1, 2], ".repeat(1 << 18);
        let text = format!("{{\"data\": [{data}0], \"uncia\": {{\"fresh\": true}}}}");
        let pieces: Vec<_> =
            text.as_bytes().chunks(10_000).map(|it| str::from_utf8(it).unwrap()).collect();
        assert_eq!(
            kept(200, &pieces),
            ("{\"uncia\": {\"fresh\": true}}".into(), text.len() as u64)
        );
        // The next answer is another.
        let mut body = Body::new();
        body.take(200, text.as_bytes());
        body.clear();
        body.take(200, b"{}");
        assert_eq!(body.kept(), b"{}");
        let spans = format!("{{\"uncia\": {{\"spans\": [{}0]}}}}", data.repeat(5));
        assert_eq!(kept(200, &[&spans]), ("{too long".to_owned(), spans.len() as u64));
    }

    #[test]
    fn the_whole_is_kept_on_request_and_up_to_a_limit() {
        let mut body = Body::new();
        body.take(200, b"hello");
        assert_eq!(body.take_whole(), None);
        body.clear();
        body.keep_whole();
        body.take(200, b"not ");
        body.take(200, b"JSON");
        assert_eq!(body.kept(), b"");
        assert_eq!(body.take_whole(), Some(Whole::Kept(b"not JSON".to_vec())));
        body.clear();
        body.keep_whole();
        body.take(200, &vec![b'x'; MAX_ANSWER_BYTES]);
        body.take(200, b"x");
        body.take(200, b"x");
        assert_eq!(body.take_whole(), Some(Whole::TooLong));
        assert_eq!(body.bytes(), MAX_ANSWER_BYTES as u64 + 2);
    }

    #[test]
    fn extensions_are_known_by_their_beginning() {
        assert!(is_extension(b"x-a") && is_extension(b"X-Uncia-Start"));
        for other in ["", "x-", "xa", "y-a", "server"] {
            assert!(!is_extension(other.as_bytes()), "{other:?}");
        }
    }
}
