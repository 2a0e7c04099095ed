//! Just enough of HTTP/1.1 to serve the Runtime API.
//!
//! It is written by hand because the invocation itself writes the answer to a waiting request, with
//! no task in between, and because the answer to a pipelined request can wait for the next one: an
//! instance is then woken once for each invocation, not twice.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest request line and headers.
const MAX_HEAD: usize = 64 * 1024;

/// Most headers of a request.
const MAX_HEADERS: usize = 64;

/// Longest line that introduces a chunk, or trailer.
const MAX_LINE: usize = 8 * 1024;

/// Room made for one read.
const READ_BYTES: usize = 16 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("the connection was closed in the middle of a request")]
    Closed,
    #[error("the request is no HTTP/1.1: {0}")]
    Malformed(&'static str),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What the Runtime API needs to know of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Head {
    pub method: String,
    pub path: String,
    pub length: Length,
    pub expects_continue: bool,
    pub close: bool,
    /// `Lambda-Runtime-Function-Error-Type`.
    pub error_type: Option<String>,
    /// `Uncia-Began`: when the client's first line ran, by the monotonic clock in ns.
    pub began: Option<i64>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    #[default]
    None,
    Known(u64),
    Chunked,
}

/// A request's body.
#[derive(Debug, PartialEq, Eq)]
pub struct Body {
    /// Empty if larger than the limit.
    pub bytes: Bytes,
    /// Its size, whether kept or not.
    pub size: u64,
    /// An error type in the trailer, by which a streamed answer turns out to be an error.
    pub trailing_error: Option<String>,
}

/// Reads requests from a connection.
pub struct Reader<R> {
    source: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub fn new(source: R) -> Self {
        Self { source, buffer: BytesMut::new() }
    }

    /// Whether there is more to read without waiting.
    pub fn has_buffered(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// The next request; `None` when the client has closed the connection between two.
    pub async fn head(&mut self) -> Result<Option<Head>, HttpError> {
        loop {
            if let Some((head, size)) = parse(&self.buffer)? {
                self.buffer.advance(size);
                return Ok(Some(head));
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(HttpError::Malformed("its head is too long"));
            }
            if self.fill().await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(HttpError::Closed) };
            }
        }
    }

    /// Reads the body to its end, keeping at most `limit` bytes.
    pub async fn body(&mut self, length: Length, limit: u64) -> Result<Body, HttpError> {
        match length {
            Length::None => Ok(Body { bytes: Bytes::new(), size: 0, trailing_error: None }),
            Length::Known(size) => {
                let bytes = self.exactly(size, size <= limit).await?;
                Ok(Body { bytes, size, trailing_error: None })
            }
            Length::Chunked => self.chunked(limit).await,
        }
    }

    async fn exactly(&mut self, size: u64, keep: bool) -> Result<Bytes, HttpError> {
        if keep {
            let size = usize::try_from(size).map_err(|_| HttpError::Malformed("too long"))?;
            self.buffer.reserve(size.saturating_sub(self.buffer.len()));
            while self.buffer.len() < size {
                if self.fill().await? == 0 {
                    return Err(HttpError::Closed);
                }
            }
            return Ok(self.buffer.split_to(size).freeze());
        }
        let mut left = size;
        loop {
            let here = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.buffer.advance(here);
            left -= here as u64;
            if left == 0 {
                return Ok(Bytes::new());
            }
            if self.fill().await? == 0 {
                return Err(HttpError::Closed);
            }
        }
    }

    async fn chunked(&mut self, limit: u64) -> Result<Body, HttpError> {
        let mut kept = BytesMut::new();
        let mut size = 0_u64;
        loop {
            let line = self.line().await?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let chunk = u64::from_str_radix(digits, 16)
                .map_err(|_| HttpError::Malformed("a chunk has no size"))?;
            if chunk == 0 {
                break;
            }
            size = size.saturating_add(chunk);
            let bytes = self.exactly(chunk, size <= limit).await?;
            if size <= limit {
                kept.extend_from_slice(&bytes);
            } else {
                kept = BytesMut::new();
            }
            if !self.line().await?.is_empty() {
                return Err(HttpError::Malformed("a chunk is longer than it says"));
            }
        }
        let mut trailing_error = None;
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(':') else { break };
            if name.eq_ignore_ascii_case("lambda-runtime-function-error-type") {
                trailing_error = Some(value.trim().to_owned());
            }
        }
        Ok(Body { bytes: kept.freeze(), size, trailing_error })
    }

    async fn line(&mut self) -> Result<String, HttpError> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.buffer.split_to(end);
                self.buffer.advance(2);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if self.buffer.len() > MAX_LINE {
                return Err(HttpError::Malformed("a line is too long"));
            }
            if self.fill().await? == 0 {
                return Err(HttpError::Closed);
            }
        }
    }

    async fn fill(&mut self) -> Result<usize, HttpError> {
        self.buffer.reserve(READ_BYTES);
        Ok(self.source.read_buf(&mut self.buffer).await?)
    }
}

/// A request's head and its size, if all of it is there.
fn parse(buffer: &[u8]) -> Result<Option<(Head, usize)>, HttpError> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let size = match request.parse(buffer) {
        Ok(httparse::Status::Complete(size)) => size,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(HttpError::Malformed("its head cannot be read")),
    };
    let mut head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: request.path.unwrap_or_default().to_owned(),
        close: request.version == Some(0),
        ..Head::default()
    };
    for header in request.headers {
        let value = std::str::from_utf8(header.value).unwrap_or_default().trim();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let size =
                value.parse().map_err(|_| HttpError::Malformed("its length is no number"))?;
            if head.length != Length::Chunked {
                head.length = Length::Known(size);
            }
        } else if is("transfer-encoding") {
            if !value.eq_ignore_ascii_case("chunked") {
                return Err(HttpError::Malformed("its body is encoded"));
            }
            head.length = Length::Chunked;
        } else if is("connection") {
            head.close |= value.eq_ignore_ascii_case("close");
        } else if is("expect") {
            head.expects_continue = value.eq_ignore_ascii_case("100-continue");
        } else if is("lambda-runtime-function-error-type") {
            head.error_type = Some(value.to_owned());
        } else if is("uncia-began") {
            head.began = value.parse().ok();
        }
    }
    Ok(Some((head, size)))
}

/// A response without special headers.
pub fn response(status: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = head(status, body.len(), &[]);
    bytes.extend_from_slice(body);
    bytes
}

/// A response's head. Header values are cut at what would end a line.
pub fn head(status: u16, length: usize, headers: &[(&str, &str)]) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        202 => "Accepted",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        413 => "Payload Too Large",
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

    #[tokio::test]
    async fn two_requests_in_one_write() {
        let bytes = b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n";
        let mut reader = Reader::new(&bytes[..]);
        let head = reader.head().await.unwrap().unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str()), ("POST", "/a"));
        assert_eq!(reader.body(head.length, 10).await.unwrap().bytes, "abc");
        assert!(reader.has_buffered());
        assert_eq!(reader.head().await.unwrap().unwrap().path, "/b");
        assert!(reader.head().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn what_is_too_large_is_counted_and_skipped() {
        let bytes = b"POST /a HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcdeGET /b HTTP/1.1\r\n\r\n";
        let mut reader = Reader::new(&bytes[..]);
        let head = reader.head().await.unwrap().unwrap();
        let body = reader.body(head.length, 4).await.unwrap();
        assert_eq!((body.bytes.len(), body.size), (0, 5));
        assert_eq!(reader.head().await.unwrap().unwrap().path, "/b");
    }

    #[tokio::test]
    async fn chunks_with_a_trailer() {
        let bytes = b"POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\n\
            Lambda-Runtime-Function-Error-Type: Unhandled\r\n\r\nGET /b HTTP/1.1\r\n\r\n";
        for (limit, kept) in [(100, "abc0123456789"), (12, "")] {
            let mut reader = Reader::new(&bytes[..]);
            let head = reader.head().await.unwrap().unwrap();
            let body = reader.body(head.length, limit).await.unwrap();
            assert_eq!((body.bytes, body.size), (Bytes::from(kept), 13));
            assert_eq!(body.trailing_error.as_deref(), Some("Unhandled"));
            assert_eq!(reader.head().await.unwrap().unwrap().path, "/b");
        }
    }

    #[tokio::test]
    async fn nonsense_is_refused() {
        for bytes in [
            &b"\0\0\0\r\n\r\n"[..],
            b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        ] {
            let error = Reader::new(bytes).head().await.unwrap_err();
            assert!(matches!(error, HttpError::Malformed(_)), "{error}");
        }
        let long = [b'a'; 100_000];
        assert!(Reader::new(&long[..]).head().await.is_err());
        let half = b"GET / HT";
        assert!(matches!(Reader::new(&half[..]).head().await, Err(HttpError::Closed)));
        let chunk = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        let mut reader = Reader::new(&chunk[..]);
        let head = reader.head().await.unwrap().unwrap();
        assert!(reader.body(head.length, 10).await.is_err());
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
                let mut reader = Reader::new(&bytes[..]);
                while let Ok(Some(head)) = reader.head().await {
                    if reader.body(head.length, limit).await.is_err() {
                        break;
                    }
                }
            });
        }
    }
}
