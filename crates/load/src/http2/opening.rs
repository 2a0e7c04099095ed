//! The first bytes of the peer: those of HTTP/2, or of something else.

use super::SessionError;

/// A frame's header: its length, type, flags and stream.
const FRAME_HEADER_BYTES: usize = 9;
const SETTINGS: u8 = 4;
/// Of what a peer says that does not speak HTTP/2, this much is told.
const MAX_SAID_BYTES: usize = 120;

/// Watches how a connection begins. The server's first frame is SETTINGS (RFC 9113, 3.4); a server
/// of another protocol says something else, which is the best explanation there is.
#[derive(Debug, Default)]
pub(super) struct Opening {
    bytes: Vec<u8>,
    known: bool,
}

impl Opening {
    /// Takes input until it is known. Returns the bytes that were held back, once they are good.
    pub(super) fn feed<'a>(&'a mut self, input: &'a [u8]) -> Result<&'a [u8], SessionError> {
        if self.known {
            self.bytes = Vec::new();
            return Ok(input);
        }
        self.bytes.extend_from_slice(input);
        if self.bytes.len() >= FRAME_HEADER_BYTES && is_settings(&self.bytes) {
            self.known = true;
            return Ok(&self.bytes);
        }
        let may_be_more = match self.bytes.len() {
            0..FRAME_HEADER_BYTES => true,
            // The rest of a line is worth waiting for.
            length => length < MAX_SAID_BYTES && is_text(&self.bytes),
        };
        if may_be_more { Ok(&[]) } else { Err(self.not_http2()) }
    }

    /// The peer has closed the connection: an error if nothing it has said was HTTP/2.
    pub(super) fn end(&self) -> Result<(), SessionError> {
        match (self.known, self.bytes.is_empty()) {
            (true, _) => Ok(()),
            (false, true) => Err(SessionError::Silent),
            (false, false) => Err(self.not_http2()),
        }
    }

    fn not_http2(&self) -> SessionError {
        let bytes = &self.bytes[..self.bytes.len().min(MAX_SAID_BYTES)];
        let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
        SessionError::NotHttp2 { said: line.trim_ascii_end().escape_ascii().to_string() }
    }
}

fn is_settings(bytes: &[u8]) -> bool {
    let (kind, flags, stream) = (bytes[3], bytes[4], &bytes[5..FRAME_HEADER_BYTES]);
    let is_on_connection = stream[0] & 0x7f == 0 && stream[1..] == [0; 3];
    kind == SETTINGS && flags & 1 == 0 && is_on_connection
}

/// Whether this is a line of text without its end.
fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pieces: &[&[u8]]) -> String {
        let mut opening = Opening::default();
        let fed = pieces.iter().try_for_each(|piece| opening.feed(piece).map(|_| ()));
        match fed.and_then(|()| opening.end()) {
            Err(SessionError::NotHttp2 { said }) => said,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_pass_in_pieces_of_any_size() {
        let frames = b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\0\0\x04\x01\0\0\0\0";
        for piece in 1..=frames.len() {
            let mut opening = Opening::default();
            let mut passed = Vec::new();
            for bytes in frames.chunks(piece) {
                passed.extend_from_slice(opening.feed(bytes).unwrap());
            }
            assert_eq!(passed, frames, "in pieces of {piece}");
            assert_eq!(opening.end(), Ok(()));
        }
    }

    #[test]
    fn another_protocol_is_told_by_what_it_says() {
        let answer = b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n";
        assert_eq!(said(&[answer]), "HTTP/1.1 400 Bad Request");
        let pieces: Vec<&[u8]> = answer.chunks(1).collect();
        assert_eq!(said(&pieces), "HTTP/1.1 400 Bad Request");
        assert_eq!(said(&[b"HTTP/1.1 400"]), "HTTP/1.1 400");
        assert_eq!(said(&[b"220"]), "220");
        assert_eq!(
            said(&[b"\x15\x03\x01\0\x02\x02\x46\0\0"]),
            r"\x15\x03\x01\x00\x02\x02F\x00\x00"
        );
        assert_eq!(said(&[&[b'a'; 500]]).len(), MAX_SAID_BYTES);
        assert_eq!(Opening::default().end(), Err(SessionError::Silent));
    }
}
