//! Reads the requests of the Runtime API, and writes its responses.
//!
//! It is written by hand because the invocation itself writes the answer to a waiting request, with
//! no task in between, and because the answer to a pipelined request can wait for the next one: an
//! instance is then woken once for each invocation, not twice.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc;
use uncia_http1::chunked::{ChunkError, Decoder};
use uncia_http1::{HeadError, Length, RequestHead, Shortener, parse_request};

use super::pace::{CHUNK, Pace};
use crate::passage::Passage;
use crate::reception::{FREE_BYTES, FUNCTIONS, Room, outstayed};

/// Room made for one read.
const READ_BYTES: usize = 16 * 1024;

/// Of a body that is larger than may be kept, the rest is read and forgotten, so that the connection
/// can go on; but not endlessly.
const MAX_SKIPPED: u64 = 64 * 1024 * 1024;

/// What is kept of a chunked body grows by at most this much at a time.
const GROWTH: usize = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("the connection was closed in the middle of a request")]
    Closed,
    #[error(transparent)]
    Head(#[from] HeadError),
    #[error(transparent)]
    Chunks(#[from] ChunkError),
    #[error("the body did not arrive in time, and its room was needed")]
    Outstayed,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What the Runtime API needs to know of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub request: RequestHead,
    /// `Lambda-Runtime-Function-Error-Type`.
    pub error_type: Option<String>,
    pub extension: ExtensionHeaders,
    /// `Lambda-Runtime-Function-Response-Mode: streaming`: the answer is sent while it is made.
    pub streams: bool,
    pub content_type: Option<String>,
    /// `Uncia-Began`: when the client's first line ran, by the monotonic clock in ns.
    pub began: Option<i64>,
    /// `Uncia-Byte-Code`: how many files of the platform's byte code the client could not use.
    pub unusable_byte_code: u32,
}

/// What extensions say in their requests' heads.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ExtensionHeaders {
    /// `Lambda-Extension-Name`.
    pub name: Option<String>,
    /// `Lambda-Extension-Identifier`.
    pub id: Option<String>,
    /// `Lambda-Extension-Function-Error-Type`.
    pub error_type: Option<String>,
}

impl ExtensionHeaders {
    fn take(&mut self, name: &str, value: &[u8]) {
        const PREFIX: &str = "lambda-extension-";
        let Some(beginning) = name.get(..PREFIX.len()) else { return };
        if !beginning.eq_ignore_ascii_case(PREFIX) {
            return;
        }
        let field = match name[PREFIX.len()..].to_ascii_lowercase().as_str() {
            "name" => &mut self.name,
            "identifier" => &mut self.id,
            "function-error-type" => &mut self.error_type,
            _ => return,
        };
        *field = Some(String::from_utf8_lossy(value).into_owned());
    }
}

/// A request's body.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    /// Empty if larger than the limit.
    pub bytes: Bytes,
    /// Its size, whether kept or not; of an incomplete one, what is known of it.
    pub size: u64,
    /// It goes on endlessly, and was given up: the connection cannot be used any more.
    pub endless: bool,
    /// An error in the trailer, as which a streamed answer turns out.
    pub trailing_error: Option<TrailingError>,
}

/// What the trailer of an answer says of an error.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TrailingError {
    /// `Lambda-Runtime-Function-Error-Type`.
    pub kind: Option<String>,
    /// `Lambda-Runtime-Function-Error-Body`, decoded from base64.
    pub payload: Option<Bytes>,
}

impl TrailingError {
    fn of(decoder: &Decoder) -> Option<Self> {
        let mut error = Self::default();
        for (name, value) in decoder.trailers() {
            if name.eq_ignore_ascii_case(ERROR_TYPE) {
                error.kind = Some(String::from_utf8_lossy(value).into_owned());
            } else if name.eq_ignore_ascii_case(ERROR_BODY) {
                error.payload = STANDARD.decode(value).ok().map(Bytes::from);
            }
        }
        (error != Self::default()).then_some(error)
    }
}

/// Reads requests from a connection.
pub(super) struct Reader<R> {
    source: R,
    buffer: BytesMut,
    pace: Arc<Pace>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(source: R, pace: Arc<Pace>) -> Self {
        Self { source, buffer: BytesMut::new(), pace }
    }

    /// Whether there is more to read without waiting.
    pub(super) fn has_buffered(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next request; `None` when the client has closed the connection between two.
    pub(super) async fn head(&mut self) -> Result<Option<Head>, HttpError> {
        // Runtimes say in a header, too, what an exception says in the body, with its stack.
        let mut shortener = Shortener::default();
        loop {
            if shortener.shorten(&mut self.buffer)?
                && let Some((head, size)) = parse(&self.buffer)?
            {
                self.buffer.advance(size);
                return Ok(Some(head));
            }
            if self.fill(None).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(HttpError::Closed) };
            }
        }
    }

    /// Reads the body to its end, keeping at most `limit` bytes.
    pub(super) async fn body(&mut self, length: Length, limit: u64) -> Result<Body, HttpError> {
        match length {
            Length::None => Ok(Body::default()),
            Length::Known(size) if size <= limit => {
                let bytes = usize::try_from(size).map_err(|_| HttpError::Closed)?;
                Ok(Body { bytes: self.keep(bytes).await?, size, ..Body::default() })
            }
            Length::Known(size) if size > MAX_SKIPPED => {
                Ok(Body { size, endless: true, ..Body::default() })
            }
            Length::Known(size) => {
                self.skip(size).await?;
                Ok(Body { size, ..Body::default() })
            }
            Length::Chunked => self.chunked(limit).await,
        }
    }

    async fn keep(&mut self, size: usize) -> Result<Bytes, HttpError> {
        if self.buffer.len() >= size {
            return Ok(self.buffer.split_to(size).freeze());
        }
        let room = FUNCTIONS.enter(size).await;
        let mut kept = Vec::with_capacity(size);
        kept.extend_from_slice(&self.buffer);
        self.buffer.clear();
        while kept.len() < size {
            let mut rest = (&mut self.source).take((size - kept.len()) as u64);
            let read = tokio::select! {
                read = rest.read_buf(&mut kept) => read?,
                () = outstayed(room.as_ref()) => return Err(HttpError::Outstayed),
            };
            if read == 0 {
                return Err(HttpError::Closed);
            }
        }
        Ok(kept.into())
    }

    async fn skip(&mut self, size: u64) -> Result<(), HttpError> {
        let mut left = size;
        loop {
            let here = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.buffer.advance(here);
            left -= here as u64;
            if left == 0 {
                return Ok(());
            }
            if self.fill(None).await? == 0 {
                return Err(HttpError::Closed);
            }
        }
    }

    async fn chunked(&mut self, limit: u64) -> Result<Body, HttpError> {
        let limit_bytes = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut decoder = Decoder::new();
        let mut kept = Vec::new();
        let mut room = None;
        loop {
            let before = decoder.chunks();
            let mut fits = decoder.content() <= limit;
            let (used, done) = decoder.decode(&self.buffer, |data| {
                fits &= data.len() <= limit_bytes - kept.len();
                if fits {
                    if kept.capacity() - kept.len() < data.len() {
                        kept.reserve_exact(data.len().max(kept.len().min(GROWTH)));
                    }
                    kept.extend_from_slice(data);
                }
            })?;
            self.buffer.advance(used);
            let chunks = u32::try_from(decoder.chunks() - before).unwrap_or(u32::MAX);
            self.pace.spend(CHUNK * chunks).await;
            if !fits {
                kept = Vec::new();
                room = None;
            }
            if done || decoder.content() > MAX_SKIPPED {
                return Ok(Body {
                    trailing_error: TrailingError::of(&decoder),
                    bytes: kept.into(),
                    size: decoder.content(),
                    endless: !done,
                });
            }
            if room.is_none() && kept.len() > FREE_BYTES / 2 {
                room = FUNCTIONS.enter(limit_bytes).await;
            }
            if self.fill(room.as_ref()).await? == 0 {
                return Err(HttpError::Closed);
            }
        }
    }

    /// Passes the body on as it comes, at most `limit` bytes; its client may go away. Nothing is kept.
    pub(super) async fn pass(
        &mut self,
        length: Length,
        limit: u64,
        passage: &Passage,
        pieces: &mpsc::Sender<Bytes>,
    ) -> Result<Body, HttpError> {
        let mut decoder = Decoder::new();
        let mut size = 0;
        loop {
            let (piece, done) = match length {
                Length::None => (Bytes::new(), true),
                Length::Known(whole) => {
                    let left = usize::try_from(whole - size).unwrap_or(usize::MAX);
                    let piece = self.buffer.split_to(self.buffer.len().min(left)).freeze();
                    let done = size + piece.len() as u64 == whole;
                    (piece, done)
                }
                Length::Chunked => {
                    let before = decoder.chunks();
                    let mut piece = BytesMut::with_capacity(self.buffer.len());
                    let (used, done) =
                        decoder.decode(&self.buffer, |data| piece.extend_from_slice(data))?;
                    self.buffer.advance(used);
                    let chunks = u32::try_from(decoder.chunks() - before).unwrap_or(u32::MAX);
                    self.pace.spend(CHUNK * chunks).await;
                    (piece.freeze(), done)
                }
            };
            size += piece.len() as u64;
            if size <= limit && !piece.is_empty() {
                let bytes = piece.len();
                // A function runs to its end, whether or not anybody listens.
                if pieces.send(piece).await.is_ok() {
                    passage.count_sent(bytes);
                }
            }
            if done || size > limit.saturating_add(MAX_SKIPPED) {
                return Ok(Body {
                    bytes: Bytes::new(),
                    size,
                    endless: !done,
                    trailing_error: TrailingError::of(&decoder),
                });
            }
            if self.fill(None).await? == 0 {
                return Err(HttpError::Closed);
            }
        }
    }

    async fn fill(&mut self, room: Option<&Room>) -> Result<usize, HttpError> {
        self.buffer.reserve(READ_BYTES);
        tokio::select! {
            read = self.source.read_buf(&mut self.buffer) => Ok(read?),
            () = outstayed(room) => Err(HttpError::Outstayed),
        }
    }
}

const ERROR_TYPE: &str = "lambda-runtime-function-error-type";
const ERROR_BODY: &str = "lambda-runtime-function-error-body";
const RESPONSE_MODE: &str = "lambda-runtime-function-response-mode";

/// A request's head and its size, if all of it is there.
fn parse(buffer: &[u8]) -> Result<Option<(Head, usize)>, HeadError> {
    let (mut error_type, mut began, mut unusable_byte_code) = (None, None, 0);
    let mut extension = ExtensionHeaders::default();
    let (mut streams, mut content_type) = (false, None);
    let parsed = parse_request(buffer, |name, value| {
        if name.eq_ignore_ascii_case(ERROR_TYPE) {
            error_type = Some(String::from_utf8_lossy(value).into_owned());
        } else if name.eq_ignore_ascii_case(RESPONSE_MODE) {
            streams = value.eq_ignore_ascii_case(b"streaming");
        } else if name.eq_ignore_ascii_case("content-type") {
            content_type = Some(String::from_utf8_lossy(value).into_owned());
        } else if name.eq_ignore_ascii_case("uncia-began") {
            began = number(value);
        } else if name.eq_ignore_ascii_case("uncia-byte-code") {
            unusable_byte_code = number(value).unwrap_or_default();
        } else {
            extension.take(name, value);
        }
    })?;
    Ok(parsed.map(|(request, size)| {
        let head = Head {
            request,
            error_type,
            extension,
            streams,
            content_type,
            began,
            unusable_byte_code,
        };
        (head, size)
    }))
}

fn number<T: std::str::FromStr>(value: &[u8]) -> Option<T> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A response without special headers.
pub(super) fn response(status: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = head(status, body.len(), &[]);
    bytes.extend_from_slice(body);
    bytes
}

/// A response's head. Header values are cut at what would end a line.
pub(super) fn head(status: u16, length: usize, headers: &[(&str, &str)]) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Payload Too Large",
        431 => "Request Header Fields Too Large",
        _ => "Error",
    };
    let mut text = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n"
    );
    for (name, value) in headers {
        text.push_str(name);
        text.push_str(": ");
        text.extend(value.chars().take_while(|it| !matches!(it, '\r' | '\n' | '\0')));
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader(bytes: &[u8]) -> Reader<&[u8]> {
        Reader::new(bytes, Pace::new())
    }

    #[tokio::test]
    async fn two_requests_in_one_write() {
        let bytes = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n";
        let mut reader = reader(&bytes[..]);
        let head = reader.head().await.unwrap().unwrap();
        assert_eq!((head.request.method.as_str(), head.request.path.as_str()), ("POST", "/a"));
        assert_eq!(reader.body(head.request.length, 10).await.unwrap().bytes, "abc");
        assert!(reader.has_buffered());
        assert_eq!(reader.head().await.unwrap().unwrap().request.path, "/b");
        assert!(reader.head().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_is_too_large_is_counted_and_skipped() {
        let bytes = b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcdeGET /b HTTP/1.1\r\n\r\n";
        let mut reader = reader(&bytes[..]);
        let head = reader.head().await.unwrap().unwrap();
        let body = reader.body(head.request.length, 4).await.unwrap();
        assert_eq!((body.bytes.len(), body.size), (0, 5));
        assert_eq!(reader.head().await.unwrap().unwrap().request.path, "/b");
    }

    #[tokio::test]
    async fn chunks_with_a_trailer() {
        let bytes = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\
            Lambda-Runtime-Function-Error-Type: Unhandled\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
        for (limit, kept) in [(100, "abc0123456789"), (12, "")] {
            let mut reader = reader(&bytes[..]);
            let head = reader.head().await.unwrap().unwrap();
            let body = reader.body(head.request.length, limit).await.unwrap();
            assert_eq!((body.bytes, body.size), (Bytes::from(kept), 13));
            let error = body.trailing_error.unwrap();
            assert_eq!((error.kind.as_deref(), error.payload), (Some("Unhandled"), None));
            assert_eq!(reader.head().await.unwrap().unwrap().request.path, "/b");
        }
    }

    #[tokio::test]
    async fn a_body_is_passed_on_as_it_comes() {
        let chunked = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\
            Lambda-Runtime-Function-Error-Type: T\r\nLambda-Runtime-Function-Error-Body: e30=\r\n\r\n\
            GET /b HTTP/1.1\r\n\r\n";
        let known = b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcdeGET /b HTTP/1.1\r\n\r\n";
        for (bytes, has_error) in [(&chunked[..], true), (&known[..], false)] {
            for (limit, passed) in [(5, 5), (4, 0)] {
                let mut reader = reader(bytes);
                let head = reader.head().await.unwrap().unwrap();
                let (passage, _) = Passage::new();
                let (sender, mut pieces) = mpsc::channel(8);
                let body = reader.pass(head.request.length, limit, &passage, &sender);
                let body = body.await.unwrap();
                drop(sender);
                let mut received = 0;
                while let Some(piece) = pieces.recv().await {
                    received += piece.len();
                }
                assert_eq!((body.size, received, passage.sent()), (5, passed, passed as u64));
                let error = body.trailing_error.map(|it| (it.kind.unwrap(), it.payload.unwrap()));
                assert_eq!(error, has_error.then(|| ("T".to_owned(), Bytes::from("{}"))));
                assert_eq!(reader.head().await.unwrap().unwrap().request.path, "/b");
            }
        }
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        for bytes in [
            &b"\0\0\0\r\n\r\n"[..],
            b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        ] {
            let error = reader(bytes).head().await.unwrap_err();
            assert!(matches!(error, HttpError::Head(_)), "{error}");
        }
        let long = vec![b'a'; 100_000];
        assert!(reader(&long[..]).head().await.is_err());
        let half = b"GET / HT";
        assert!(matches!(reader(&half[..]).head().await, Err(HttpError::Closed)));
        let chunk = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        let mut reader = reader(&chunk[..]);
        let head = reader.head().await.unwrap().unwrap();
        assert!(reader.body(head.request.length, 10).await.is_err());
    }

    #[tokio::test]
    async fn endless_bodies_are_given_up() {
        let text = format!("POST /a HTTP/1.1\r\nContent-Length: {}\r\n\r\n", u64::MAX);
        let mut known = reader(text.as_bytes());
        let head = known.head().await.unwrap().unwrap();
        let body = known.body(head.request.length, 10).await.unwrap();
        assert_eq!((body.endless, body.size, body.bytes.len()), (true, u64::MAX, 0));
        let chunk = [b"fffff\r\n".to_vec(), vec![b'x'; 0xf_ffff], b"\r\n".to_vec()].concat();
        let mut chunks = reader(&[]);
        chunks.buffer.extend_from_slice(&chunk.repeat(65));
        let body = chunks.body(Length::Chunked, 10).await.unwrap();
        assert!(body.endless && body.size > MAX_SKIPPED && body.bytes.is_empty());
    }

    #[test]
    fn header_values_cannot_start_new_headers() {
        let text = String::from_utf8(head(200, 0, &[("A", "b\r\nC: d")])).unwrap();
        assert!(text.ends_with("A: b\r\n\r\n"));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_request_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..2000), limit in 0_u64..1000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let mut reader = reader(&bytes[..]);
                while let Ok(Some(head)) = reader.head().await {
                    if reader.body(head.request.length, limit).await.is_err() {
                        break;
                    }
                }
            });
        }
    }
}
