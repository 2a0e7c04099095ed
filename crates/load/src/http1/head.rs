//! The head of a response: status, framing, and whether the connection lives on.

use std::mem::MaybeUninit;

use uncia_http1::{MAX_HEAD_BYTES, content_length};

use super::ResponseError;
use crate::answer::is_extension;

/// More headers than this are an attack or a mistake.
const MAX_HEADERS: usize = 128;

/// How the end of the body is found (RFC 9112, 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// What the head says to the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub status: u16,
    pub framing: Framing,
    pub keep_alive: bool,
    /// Whether a header begins with `x-`: platforms speak in these.
    pub has_extensions: bool,
}

/// Parses a head at the start of `bytes`: the head and its length, or none if it is not all there.
pub(super) fn parse(
    bytes: &[u8],
    is_head_request: bool,
) -> Result<Option<(Head, usize)>, ResponseError> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut response, bytes, &mut headers)
        .map_err(ResponseError::NotHttp)?;
    let httparse::Status::Complete(length) = parsed else {
        return if bytes.len() > MAX_HEAD_BYTES { Err(too_long()) } else { Ok(None) };
    };
    if length > MAX_HEAD_BYTES {
        return Err(too_long());
    }
    let status = response.code.unwrap_or_default();
    let mut facts = Facts { keep_alive: response.version == Some(1), ..Facts::default() };
    for header in response.headers.iter() {
        facts.see(header)?;
    }
    let framing = match status {
        100..=199 | 204 | 304 => Framing::None,
        _ if is_head_request => Framing::None,
        _ => facts.framing(),
    };
    // RFC 9112, 6.1: with both, somebody on the way may have understood another message.
    let ambiguous = facts.transfer_encoding && facts.length.is_some();
    let head = Head {
        status,
        framing,
        keep_alive: facts.keep_alive && framing != Framing::UntilClose && !ambiguous,
        has_extensions: facts.has_extensions,
    };
    Ok(Some((head, length)))
}

fn too_long() -> ResponseError {
    ResponseError::HeadTooLong { limit: MAX_HEAD_BYTES }
}

#[derive(Default)]
struct Facts {
    length: Option<u64>,
    transfer_encoding: bool,
    chunked: bool,
    keep_alive: bool,
    has_extensions: bool,
}

impl Facts {
    fn see(&mut self, header: &httparse::Header<'_>) -> Result<(), ResponseError> {
        let name = header.name.as_bytes();
        if is_extension(name) {
            self.has_extensions = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            for value in header.value.split(|&byte| byte == b',') {
                let value =
                    content_length(value.trim_ascii()).ok_or(ResponseError::ContentLength)?;
                if self.length.is_some_and(|other| other != value) {
                    return Err(ResponseError::ContentLength);
                }
                self.length = Some(value);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.transfer_encoding = true;
            let last = header.value.rsplit(|&byte| byte == b',').next().unwrap_or_default();
            self.chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
        } else if name.eq_ignore_ascii_case(b"connection") {
            for option in header.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    self.keep_alive = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    self.keep_alive = true;
                }
            }
        }
        Ok(())
    }

    fn framing(&self) -> Framing {
        match (self.transfer_encoding, self.length) {
            (true, _) if self.chunked => Framing::Chunked,
            (true, _) | (false, None) => Framing::UntilClose,
            (false, Some(0)) => Framing::None,
            (false, Some(length)) => Framing::Length(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Head, ResponseError> {
        parse(text.as_bytes(), false).map(|parsed| parsed.expect("it is complete").0)
    }

    fn framing(headers: &str) -> Result<Framing, ResponseError> {
        head(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n")).map(|head| head.framing)
    }

    #[test]
    fn the_body_s_end_is_found_as_the_standard_says() {
        assert_eq!(framing("Content-Length: 5\r\n"), Ok(Framing::Length(5)));
        assert_eq!(
            framing("content-length: 5, 5\r\nContent-Length: 5\r\n"),
            Ok(Framing::Length(5))
        );
        assert_eq!(framing("Content-Length: 0\r\n"), Ok(Framing::None));
        assert_eq!(framing("Transfer-Encoding: gzip, chunked\r\n"), Ok(Framing::Chunked));
        assert_eq!(framing("Transfer-Encoding: gzip\r\n"), Ok(Framing::UntilClose));
        assert_eq!(framing(""), Ok(Framing::UntilClose));
        let both = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n";
        assert_eq!(framing(both), Ok(Framing::Chunked));
        for bad in ["5, 6", "-5", "+5", "5 5", "", "0x5", "99999999999999999999"] {
            let found = framing(&format!("Content-Length: {bad}\r\n"));
            assert_eq!(found, Err(ResponseError::ContentLength), "{bad:?}");
        }
        for status in [204, 304] {
            let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n");
            assert_eq!(head(&text).unwrap().framing, Framing::None);
        }
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(parse(text, true).unwrap().unwrap().0.framing, Framing::None);
    }

    #[test]
    fn the_connection_lives_on_as_the_standard_says() {
        let alive = |text| head(text).unwrap().keep_alive;
        assert!(alive("HTTP/1.1 204 X\r\n\r\n"));
        assert!(!alive("HTTP/1.1 204 X\r\nConnection: foo, Close\r\n\r\n"));
        assert!(!alive("HTTP/1.0 204 X\r\n\r\n"));
        assert!(alive("HTTP/1.0 204 X\r\nConnection: keep-alive\r\n\r\n"));
        assert!(!alive("HTTP/1.1 200 X\r\n\r\n"));
        let both = "HTTP/1.1 200 X\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(!alive(both));
    }

    #[test]
    fn extension_headers_are_noticed() {
        assert!(head("HTTP/1.1 204 X\r\nX-Amzn-RequestId: 1\r\n\r\n").unwrap().has_extensions);
        assert!(!head("HTTP/1.1 204 X\r\nServer: x\r\n\r\n").unwrap().has_extensions);
    }

    #[test]
    fn a_head_may_be_incomplete_but_not_endless() {
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\nA: b\r\n", false), Ok(None));
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(MAX_HEAD_BYTES));
        assert_eq!(parse(endless.as_bytes(), false), Err(too_long()));
        let found = parse(b"SSH-2.0-OpenSSH_9.2\r\n", false);
        assert!(matches!(found, Err(ResponseError::NotHttp(_))));
    }
}
