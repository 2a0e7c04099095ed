//! Where requests end in a stream of bytes: HTTP/1.1 framing, incrementally.

const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 64;

/// What has come of the request that is not yet complete.
#[derive(Default)]
pub struct Framing {
    /// Bytes of a head without its end.
    head: Vec<u8>,
    /// Bytes of the body that are still to come, once the head is there.
    body: Option<Body>,
}

struct Body {
    missing: u64,
    last: bool,
}

/// A request's head, as far as framing goes.
struct Head {
    length: usize,
    content_length: u64,
    last: bool,
}

/// Requests that some bytes completed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Completed {
    pub requests: usize,
    /// The last one asked for the connection to be closed; bytes after it do not count.
    pub last: bool,
}

impl Framing {
    /// Takes the next bytes of the stream and counts the requests that they complete.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Completed, String> {
        if self.head.is_empty() {
            let mut rest = bytes;
            let completed = self.advance(&mut rest)?;
            self.head.extend_from_slice(rest);
            return Ok(completed);
        }
        let mut head = std::mem::take(&mut self.head);
        head.extend_from_slice(bytes);
        let mut rest = head.as_slice();
        let completed = self.advance(&mut rest)?;
        self.head.extend_from_slice(rest);
        Ok(completed)
    }

    /// Goes through `rest`, leaving in it the beginning of a head that is not complete.
    fn advance(&mut self, rest: &mut &[u8]) -> Result<Completed, String> {
        let mut completed = Completed::default();
        while !completed.last {
            let mut body = match self.body.take() {
                Some(body) => body,
                None if rest.is_empty() => break,
                None => {
                    let Some(head) = parse(rest)? else { break };
                    *rest = &rest[head.length..];
                    Body { missing: head.content_length, last: head.last }
                }
            };
            let here = usize::try_from(body.missing).map_or(rest.len(), |n| n.min(rest.len()));
            *rest = &rest[here..];
            body.missing -= here as u64;
            if body.missing > 0 {
                self.body = Some(body);
                break;
            }
            completed.requests += 1;
            completed.last = body.last;
        }
        if completed.last {
            *rest = &[];
        }
        Ok(completed)
    }
}

/// The head that `bytes` begin with; none when its end has not come yet.
fn parse(bytes: &[u8]) -> Result<Option<Head>, String> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() > MAX_HEAD => {
            return Err(format!("a request's head exceeds {MAX_HEAD} bytes"));
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(format!("not HTTP/1.1: {error}")),
    };
    let mut head = Head { length, content_length: 0, last: request.version == Some(0) };
    for header in request.headers.iter() {
        let value = String::from_utf8_lossy(header.value);
        let value = value.trim();
        if header.name.eq_ignore_ascii_case("content-length") {
            head.content_length =
                value.parse().map_err(|_| format!("content-length {value:?} is not a number"))?;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(format!("transfer-encoding {value:?}: only content-length is understood"));
        } else if header.name.eq_ignore_ascii_case("connection") {
            if value.eq_ignore_ascii_case("close") {
                head.last = true;
            } else if value.eq_ignore_ascii_case("keep-alive") {
                head.last = false;
            }
        }
    }
    Ok(Some(head))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    const POST: &[u8] = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nGET /";

    fn all(framing: &mut Framing, bytes: &[u8]) -> usize {
        framing.feed(bytes).expect("well formed").requests
    }

    #[test]
    fn requests_in_one_piece() {
        let mut framing = Framing::default();
        assert_eq!(all(&mut framing, GET), 1);
        assert_eq!(all(&mut framing, POST), 1);
        assert_eq!(all(&mut framing, &[GET, POST, GET].concat()), 3);
    }

    #[test]
    fn a_request_counts_when_its_last_byte_has_come() {
        let mut framing = Framing::default();
        let (first, last) = POST.split_at(POST.len() - 1);
        assert_eq!(all(&mut framing, first), 0);
        assert_eq!(all(&mut framing, last), 1);
    }

    #[test]
    fn closing_ends_the_connection() {
        let mut framing = Framing::default();
        let close = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        assert_eq!(framing.feed(close), Ok(Completed { requests: 1, last: true }));
        let old = b"GET / HTTP/1.0\r\n\r\n";
        assert_eq!(Framing::default().feed(old), Ok(Completed { requests: 1, last: true }));
        let kept = b"GET / HTTP/1.0\r\nconnection: keep-alive\r\n\r\n";
        assert_eq!(Framing::default().feed(kept), Ok(Completed { requests: 1, last: false }));
    }

    #[test]
    fn what_cannot_be_framed_is_refused() {
        for (bytes, expected) in [
            (&b"\x16\x03\x01\x02"[..], "not HTTP/1.1"),
            (b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n", "\"many\" is not a number"),
            (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", "\"chunked\""),
        ] {
            let error = Framing::default().feed(bytes).expect_err("malformed");
            assert!(error.contains(expected), "{error}");
        }
        let endless = [b"GET / HTTP/1.1\r\nx: ".as_slice(), &vec![b'a'; MAX_HEAD]].concat();
        let error = Framing::default().feed(&endless).expect_err("too long");
        assert!(error.contains("exceeds"), "{error}");
    }

    proptest! {
        /// However the bytes are cut, the same requests are found.
        #[test]
        fn cuts_do_not_matter(
            bodies in prop::collection::vec(prop::option::of(0_usize..200), 1..8),
            cuts in prop::collection::vec(1_usize..90, 1..40),
        ) {
            let mut bytes = Vec::new();
            for length in &bodies {
                match length {
                    None => bytes.extend_from_slice(GET),
                    Some(length) => {
                        let head = format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n");
                        bytes.extend_from_slice(head.as_bytes());
                        bytes.extend(std::iter::repeat_n(b'\n', *length));
                    }
                }
            }
            let mut framing = Framing::default();
            let (mut rest, mut found) = (bytes.as_slice(), 0);
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                found += all(&mut framing, piece);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(found, bodies.len());
        }
    }
}
