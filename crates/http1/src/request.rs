//! The head of a request.

use std::mem::MaybeUninit;

/// Longest head, of a request or a response: servers and proxies refuse heads of 8 to 64 KiB.
pub const MAX_HEAD_BYTES: usize = 64 << 10;

/// Most headers of a request.
pub(crate) const MAX_HEADERS: usize = 64;

/// Why bytes are not the head of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Not HTTP at all, or more headers than there is room for.
    #[error("the head cannot be read: {0}")]
    Malformed(httparse::Error),
    /// Longer than [`MAX_HEAD_BYTES`].
    #[error("the head is longer than {MAX_HEAD_BYTES} bytes")]
    TooLong,
    /// `Content-Length` is no number, or two of them differ.
    #[error("the Content-Length is not one number")]
    ContentLength,
    /// A transfer coding other than chunked, one beside a `Content-Length`, or one of HTTP/1.0
    /// (RFC 9112, 6.1).
    #[error("the body's end cannot be known from its Transfer-Encoding")]
    TransferEncoding,
}

/// How the end of a request's body is found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// There is no body.
    #[default]
    None,
    /// So many bytes.
    Known(u64),
    /// As the [chunks](crate::chunked) say.
    Chunked,
}

/// What every request says.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// As it was sent; methods are case-sensitive.
    pub method: String,
    /// The request target, not decoded.
    pub path: String,
    /// Framing of the body.
    pub length: Length,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The connection is to be closed after the response.
    pub close: bool,
}

/// Parses a head at the start of `bytes`: the head and its size, or none if it is not all there.
/// Passes every header to `see`.
pub fn parse_request(
    bytes: &[u8],
    mut see: impl FnMut(&str, &[u8]),
) -> Result<Option<(RequestHead, usize)>, HeadError> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut headers);
    let size = match parsed.map_err(HeadError::Malformed)? {
        httparse::Status::Complete(size) if size <= MAX_HEAD_BYTES => size,
        httparse::Status::Partial if bytes.len() <= MAX_HEAD_BYTES => return Ok(None),
        _ => return Err(HeadError::TooLong),
    };
    let mut head = RequestHead {
        method: request.method.unwrap_or_default().to_owned(),
        path: request.path.unwrap_or_default().to_owned(),
        close: request.version == Some(0),
        ..RequestHead::default()
    };
    let mut length = None;
    let mut chunked = false;
    for header in request.headers.iter() {
        let value = header.value.trim_ascii();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let size = content_length(value).ok_or(HeadError::ContentLength)?;
            if length.replace(size).is_some_and(|other| other != size) {
                return Err(HeadError::ContentLength);
            }
        } else if is("transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError::TransferEncoding);
            }
            chunked = true;
        } else if is("connection") {
            let mut options = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
            head.close |= options.any(|option| option.eq_ignore_ascii_case(b"close"));
        } else if is("expect") {
            head.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
        }
        see(header.name, value);
    }
    let has_codings = request.version == Some(1);
    head.length = match (chunked, length) {
        (true, None) if !has_codings => return Err(HeadError::TransferEncoding),
        (true, Some(_)) => return Err(HeadError::TransferEncoding),
        (true, None) => Length::Chunked,
        (false, Some(size)) => Length::Known(size),
        (false, None) => Length::None,
    };
    Ok(Some((head, size)))
}

/// The number in a `Content-Length`: digits alone, without sign or white space.
pub fn content_length(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(headers: &str) -> Result<RequestHead, HeadError> {
        let text = format!("POST /a HTTP/1.1\r\n{headers}\r\n");
        parse_request(text.as_bytes(), |_, _| {}).map(|parsed| parsed.expect("all of it").0)
    }

    #[test]
    fn the_body_is_framed_as_the_standard_says() {
        let length = |headers: &str| head(headers).map(|head| head.length);
        assert_eq!(length(""), Ok(Length::None));
        assert_eq!(length("Content-Length: 5\r\ncontent-length: 5\r\n"), Ok(Length::Known(5)));
        assert_eq!(length("Transfer-Encoding: Chunked\r\n"), Ok(Length::Chunked));
        for bad in ["many", "-1", "+1", "", "1, 2", "99999999999999999999"] {
            let found = length(&format!("Content-Length: {bad}\r\n"));
            assert_eq!(found, Err(HeadError::ContentLength), "{bad}");
        }
        assert_eq!(
            length("Content-Length: 5\r\nContent-Length: 6\r\n"),
            Err(HeadError::ContentLength)
        );
        for bad in
            ["Transfer-Encoding: gzip\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"]
        {
            assert_eq!(length(bad), Err(HeadError::TransferEncoding), "{bad}");
        }
        let old = b"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse_request(old, |_, _| {}), Err(HeadError::TransferEncoding));
    }

    /// Each could make this parser and another one see different requests in the same bytes.
    #[test]
    fn heads_that_others_may_read_otherwise_are_refused() {
        for bad in [
            "X: a\r\n Content-Length: 5\r\n",
            "X: a\rContent-Length: 5\r\n",
            "X: a\0b\r\n",
            "Content-Length : 5\r\n",
            " Content-Length: 5\r\n",
            "Transfer-Encoding\t: chunked\r\n",
            "Content Length: 5\r\n",
            "Content-Length: 5,5\r\n",
            "Content-Length: 0x5\r\n",
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked, identity\r\n",
            "Transfer-Encoding: identity, chunked\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: \u{b}chunked\r\n",
        ] {
            assert!(head(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_connection_and_other_headers() {
        assert!(head("Connection: keep-alive, close\r\n").unwrap().close);
        assert!(head("Expect: 100-continue\r\n").unwrap().expects_continue);
        let mut seen = Vec::new();
        let text = b"GET /b HTTP/1.0\r\nX-A:  one \r\n\r\nrest";
        let parsed =
            parse_request(text, |name, value| seen.push((name.to_owned(), value.to_vec())));
        let (head, size) = parsed.unwrap().unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str(), head.close), ("GET", "/b", true));
        assert_eq!(size, text.len() - 4);
        assert_eq!(seen, [("X-A".to_owned(), b"one".to_vec())]);
    }

    #[test]
    fn a_head_may_be_incomplete_but_not_endless() {
        assert_eq!(parse_request(b"GET / HT", |_, _| {}), Ok(None));
        let endless = format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(MAX_HEAD_BYTES));
        assert_eq!(parse_request(endless.as_bytes(), |_, _| {}), Err(HeadError::TooLong));
        let found = parse_request(b"\0\0\0\r\n\r\n", |_, _| {});
        assert!(matches!(found, Err(HeadError::Malformed(_))));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
        assert!(parse_request(many.as_bytes(), |_, _| {}).is_err());
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_request(&bytes, |_, _| {});
            let _ = parse_request(&[b"POST / HTTP/1.1\r\n", &bytes[..]].concat(), |_, _| {});
        }
    }
}
