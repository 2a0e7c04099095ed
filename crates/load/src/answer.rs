//! What is kept of an answer's body, whatever protocol carried it.

/// Longer bodies are counted and discarded: a function's own report is far shorter.
pub const MAX_JSON_BYTES: usize = 1 << 20;
/// Of an error page that is not JSON, this much is kept to explain the error.
const MAX_ERROR_TEXT_BYTES: usize = 2 << 10;
/// From this status on the body is an explanation.
const FIRST_ERROR_STATUS: u16 = 300;

/// Which part of a body is kept for interpretation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    /// Nothing but white space has come yet.
    Undecided,
    Json,
    ErrorText,
    Nothing,
}

/// A body as it comes: all of it is counted, and what may have to be understood is kept.
#[derive(Debug)]
pub struct Body {
    keep: Keep,
    kept: Vec<u8>,
    bytes: u64,
}

impl Body {
    pub fn new() -> Self {
        Self { keep: Keep::Undecided, kept: Vec::new(), bytes: 0 }
    }

    /// Begins a new body.
    pub fn clear(&mut self) {
        self.keep = Keep::Undecided;
        self.kept.clear();
        self.bytes = 0;
    }

    /// Takes the next piece of the body of an answer with this status.
    pub fn take(&mut self, status: u16, data: &[u8]) {
        self.bytes += data.len() as u64;
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
            Keep::Json if self.kept.len() + data.len() > MAX_JSON_BYTES => {
                self.kept = Vec::new();
                self.keep = Keep::Nothing;
            }
            Keep::Json => self.kept.extend_from_slice(data),
            Keep::ErrorText => {
                let room = MAX_ERROR_TEXT_BYTES - self.kept.len();
                self.kept.extend_from_slice(&data[..room.min(data.len())]);
            }
            Keep::Undecided | Keep::Nothing => {}
        }
    }

    /// What was kept: JSON up to 1 MiB, or the beginning of an error's text.
    pub fn kept(&self) -> &[u8] {
        &self.kept
    }

    pub fn into_kept(self) -> Vec<u8> {
        self.kept
    }

    /// Bytes so far, whether kept or not.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Whether a header of this name is one that platforms speak in: it begins with `x-`.
pub fn is_extension(name: &[u8]) -> bool {
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
        let json = format!("{{{}", "1".repeat(MAX_JSON_BYTES - 1));
        assert_eq!(kept(200, &[&json]).0.len(), MAX_JSON_BYTES);
        assert_eq!(kept(200, &[&json, "}"]), (String::new(), 1 + MAX_JSON_BYTES as u64));
    }

    #[test]
    fn extensions_are_known_by_their_beginning() {
        assert!(is_extension(b"x-a") && is_extension(b"X-Uncia-Start"));
        for other in ["", "x-", "xa", "y-a", "server"] {
            assert!(!is_extension(other.as_bytes()), "{other:?}");
        }
    }
}
