//! One response after another on a connection.

use uncia_http1::chunked::Decoder;

use super::ResponseError;
use super::head::{self, Framing, Head};
use crate::answer::{Body, Whole};

#[derive(Debug, Clone)]
enum State {
    Head,
    Length { left: u64, of: u64 },
    Chunks(Decoder),
    UntilClose,
    Done,
}

/// Reads a response from pieces of any size. Start it anew for each request.
#[derive(Debug)]
pub(crate) struct ResponseReader {
    state: State,
    is_head_request: bool,
    head: Option<Head>,
    /// The bytes of the head: a part of it, or the whole when it says something about the platform.
    head_bytes: Vec<u8>,
    body: Body,
    any_input: bool,
}

/// What a piece of input brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fed {
    /// Bytes of the input that belong to the response.
    pub consumed: usize,
    /// The head is known now and was not before.
    pub head_arrived: bool,
    /// The response is complete.
    pub done: bool,
}

impl ResponseReader {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Done,
            is_head_request: false,
            head: None,
            head_bytes: Vec::new(),
            body: Body::new(),
            any_input: false,
        }
    }

    /// Expects the response to a new request.
    pub(crate) fn start(&mut self, is_head_request: bool) {
        self.state = State::Head;
        self.is_head_request = is_head_request;
        self.head = None;
        self.head_bytes.clear();
        self.body.clear();
        self.any_input = false;
    }

    /// Keeps all of the body of the response that it expects.
    pub(crate) fn keep_whole(&mut self) {
        self.body.keep_whole();
    }

    /// All of the body so far, if it was to be kept.
    pub(crate) fn take_whole(&mut self) -> Option<Whole> {
        self.body.take_whole()
    }

    /// Takes the next piece of the response.
    pub(crate) fn feed(&mut self, input: &[u8]) -> Result<Fed, ResponseError> {
        self.any_input |= !input.is_empty();
        let mut consumed = 0;
        let mut head_arrived = false;
        if matches!(self.state, State::Head) {
            match self.feed_head(input)? {
                None => return Ok(Fed { consumed: input.len(), head_arrived, done: false }),
                Some(used) => consumed = used,
            }
            head_arrived = true;
        }
        consumed += self.feed_body(&input[consumed..])?;
        Ok(Fed { consumed, head_arrived, done: matches!(self.state, State::Done) })
    }

    /// Reads heads until one that is final; returns how much of `input` they took.
    fn feed_head(&mut self, input: &[u8]) -> Result<Option<usize>, ResponseError> {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            let before = self.head_bytes.len();
            let parsed = if before == 0 {
                head::parse(rest, self.is_head_request)?
            } else {
                self.head_bytes.extend_from_slice(rest);
                head::parse(&self.head_bytes, self.is_head_request)?
            };
            let Some((head, length)) = parsed else {
                if before == 0 {
                    self.head_bytes.extend_from_slice(rest);
                }
                return Ok(None);
            };
            consumed += length - before;
            match head.status {
                101 => return Err(ResponseError::SwitchedProtocols),
                100..=199 => self.head_bytes.clear(),
                _ => {
                    self.keep_head(head, before, rest, length);
                    return Ok(Some(consumed));
                }
            }
        }
    }

    fn keep_head(&mut self, head: Head, before: usize, rest: &[u8], length: usize) {
        if !head.has_extensions {
            self.head_bytes.clear();
        } else if before == 0 {
            self.head_bytes.extend_from_slice(&rest[..length]);
        } else {
            self.head_bytes.truncate(length);
        }
        self.state = match head.framing {
            Framing::None => State::Done,
            Framing::Length(length) => State::Length { left: length, of: length },
            Framing::Chunked => State::Chunks(Decoder::new()),
            Framing::UntilClose => State::UntilClose,
        };
        self.head = Some(head);
    }

    fn feed_body(&mut self, input: &[u8]) -> Result<usize, ResponseError> {
        let mut state = std::mem::replace(&mut self.state, State::Done);
        let consumed = match &mut state {
            State::Head | State::Done => 0,
            State::UntilClose => {
                self.take(input);
                input.len()
            }
            State::Length { left, .. } => {
                let size = usize::try_from(*left).map_or(input.len(), |n| n.min(input.len()));
                self.take(&input[..size]);
                *left -= size as u64;
                if *left == 0 {
                    return Ok(size);
                }
                size
            }
            State::Chunks(decoder) => {
                let (size, done) = decoder.decode(input, |data| self.take(data))?;
                if done {
                    return Ok(size);
                }
                size
            }
        };
        self.state = state;
        Ok(consumed)
    }

    /// Counts body bytes, and keeps those that may have to be understood.
    fn take(&mut self, data: &[u8]) {
        self.body.take(self.status().unwrap_or_default(), data);
    }

    /// The server closed the connection: whether that was the end of the response, or amiss.
    pub(crate) fn end(&mut self) -> Result<(), ResponseError> {
        let received = self.body.bytes();
        match std::mem::replace(&mut self.state, State::Done) {
            State::Done | State::UntilClose => Ok(()),
            State::Head if self.any_input => Err(ResponseError::EndedInHead),
            State::Head => Err(ResponseError::NoAnswer),
            State::Length { of, .. } => Err(ResponseError::EndedInBody { received, expected: of }),
            State::Chunks(_) => Err(ResponseError::EndedInChunks { received }),
        }
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.head.map(|head| head.status)
    }

    /// Whether the connection may carry another request after this response.
    pub(crate) fn keep_alive(&self) -> bool {
        self.head.is_some_and(|head| head.keep_alive)
    }

    /// The raw head, if it has headers that platforms speak in; else nothing.
    pub(crate) fn head_bytes(&self) -> &[u8] {
        if self.head.is_some() { &self.head_bytes } else { &[] }
    }

    /// What was kept of the body: JSON, of a long one the members that matter, or the beginning of
    /// an error's text.
    pub(crate) fn body(&self) -> &[u8] {
        self.body.kept()
    }

    /// Bytes of the body so far, whether kept or not.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body.bytes()
    }
}

/// The headers of a raw head, in order.
pub(crate) fn header(raw: &[u8], mut each: impl FnMut(&str, &[u8])) {
    // The head was parsed once already; a line that does not look like a header is the status line.
    for line in raw.split(|&byte| byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else {
            continue;
        };
        if let Ok(name) = std::str::from_utf8(&line[..colon]) {
            each(name, line[colon + 1..].trim_ascii());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::MAX_WHOLE_BYTES;
    use proptest::prelude::*;

    struct Read {
        status: u16,
        body: Vec<u8>,
        bytes: u64,
        left: usize,
        keep_alive: bool,
    }

    fn read(
        reader: &mut ResponseReader,
        input: &[u8],
        piece: usize,
    ) -> Result<Option<Read>, ResponseError> {
        reader.start(false);
        let (mut position, mut heads) = (0, 0);
        while position < input.len() {
            let end = (position + piece).min(input.len());
            let fed = reader.feed(&input[position..end])?;
            heads += usize::from(fed.head_arrived);
            position += fed.consumed;
            if fed.done {
                assert_eq!(heads, 1);
                return Ok(Some(Read {
                    status: reader.status().unwrap(),
                    body: reader.body().to_vec(),
                    bytes: reader.body_bytes(),
                    left: input.len() - position,
                    keep_alive: reader.keep_alive(),
                }));
            }
            assert_eq!(fed.consumed, end - (position - fed.consumed));
        }
        Ok(None)
    }

    const RESPONSES: [(&str, u16, &str, u64); 5] = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 8\r\nX-A: 1\r\n\r\n{\"a\": 1}", 200, "{\"a\": 1}", 8),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "", 5),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
            204,
            "",
            0,
        ),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n {\n\r\n1\r\n}\r\n0\r\n\r\n",
            200,
            " {\n}",
            4,
        ),
        ("HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\noops", 502, "oops", 4),
    ];

    #[test]
    fn pieces_of_any_size_give_the_same_response_and_leave_what_follows() {
        let mut reader = ResponseReader::new();
        for (text, status, body, bytes) in RESPONSES {
            let input = format!("{text}HTTP/1.1 ");
            for piece in 1..=input.len() {
                let read = read(&mut reader, input.as_bytes(), piece).unwrap().unwrap();
                assert_eq!((read.status, read.bytes, read.keep_alive), (status, bytes, true));
                // White space before the JSON may be lost with small pieces; it means nothing.
                assert_eq!(String::from_utf8(read.body).unwrap().trim_start(), body.trim_start());
                assert_eq!(read.left, 9, "piece {piece} of {text:?}");
            }
        }
    }

    #[test]
    fn the_end_of_the_connection_ends_only_what_has_no_other_end() {
        let cut = |text: &str| {
            let mut reader = ResponseReader::new();
            reader.start(false);
            reader.feed(text.as_bytes()).unwrap();
            reader.end()
        };
        assert_eq!(cut("HTTP/1.1 200 OK\r\n\r\nuntil the close"), Ok(()));
        assert_eq!(cut(""), Err(ResponseError::NoAnswer));
        assert_eq!(cut("HTTP/1.1 20"), Err(ResponseError::EndedInHead));
        let half = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
        assert_eq!(cut(half), Err(ResponseError::EndedInBody { received: 4, expected: 10 }));
        let half = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel";
        assert_eq!(cut(half), Err(ResponseError::EndedInChunks { received: 3 }));
    }

    #[test]
    fn long_bodies_without_a_report_are_counted_and_not_kept() {
        for first in [b'{', b'x'] {
            let mut reader = ResponseReader::new();
            reader.start(false);
            let length = 3 * MAX_WHOLE_BYTES;
            reader
                .feed(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes())
                .unwrap();
            let block = vec![first; 1 << 16];
            for _ in 0..length / block.len() {
                reader.feed(&block).unwrap();
                assert!(reader.body().len() <= MAX_WHOLE_BYTES);
            }
            assert!(matches!(reader.state, State::Done));
            assert_eq!(reader.body_bytes(), length as u64);
            // Brackets that open and never close, and no text of an error.
            assert_eq!(reader.body(), if first == b'{' { "{" } else { "" }.as_bytes());
        }
    }

    #[test]
    fn protocols_are_not_switched() {
        let mut reader = ResponseReader::new();
        let found = read(&mut reader, b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", 100);
        assert!(matches!(found, Err(ResponseError::SwitchedProtocols)));
    }

    #[test]
    fn raw_headers_are_found_again() {
        let mut found = Vec::new();
        let raw = b"HTTP/1.1 200 OK: fine\r\nX-A:  one \r\nx-b:two\n\r\n";
        header(raw, |name, value| found.push((name.to_owned(), value.to_owned())));
        let expected = [("X-A".to_owned(), b"one".to_vec()), ("x-b".to_owned(), b"two".to_vec())];
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(
            start in prop::sample::select(vec!["", "HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]),
            bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1usize..50
        ) {
            let input = [start.as_bytes(), &bytes].concat();
            let _ = read(&mut ResponseReader::new(), &input, piece);
        }
    }
}
