//! Heads that are too long: the longest values of their headers are left out.
//!
//! Some clients put texts of any length into a header whose value nobody reads, as runtimes of functions do with an
//! exception and its stack. A request is not to be refused for that. Where a value is left out that frames the body, the
//! request is refused: none of these may be empty.

use std::ops::Range;

use bytes::BytesMut;

use crate::request::MAX_HEADERS;
use crate::{HeadError, MAX_HEAD_BYTES};

/// So much of a head may be left out: twice what a function may answer, as an exception's text stands there and in its stack.
const MOST_LEFT_OUT: usize = 16 << 20;

/// Shorter values are never left out: a head that is too long has a longer one, or more headers than are taken.
const LEAST_LEFT_OUT: usize = 512;
/// The request's own line, the headers, and the line that is empty. No head with more of them is worth a look, so few rounds
/// are enough.
const MOST_LINES: usize = MAX_HEADERS + 2;

/// Keeps a head that arrives piece by piece short.
#[derive(Debug, Default)]
pub struct Shortener {
    /// Where the line goes on whose value is being left out.
    open: Option<usize>,
    left_out: usize,
}

impl Shortener {
    /// Takes what has come of a request, and leaves out values until its head is as short as it must be. Whether it may
    /// be parsed now: not before the end of a line has come of which something was left out.
    ///
    /// # Errors
    /// The head is too long all the same.
    pub fn shorten(&mut self, bytes: &mut BytesMut) -> Result<bool, HeadError> {
        if let Some(from) = self.open {
            let end = bytes[from..].iter().position(|&byte| byte == b'\n');
            self.leave_out(bytes, from..end.map_or(bytes.len(), |end| from + end))?;
            if end.is_none() {
                return Ok(false);
            }
            self.open = None;
        }
        while bytes.len() > MAX_HEAD_BYTES {
            let size = head_size(bytes);
            if size.unwrap_or(bytes.len()) <= MAX_HEAD_BYTES {
                break;
            }
            let head = &bytes[..size.unwrap_or(bytes.len())];
            if head.split(|byte| *byte == b'\n').nth(MOST_LINES + 1).is_some() {
                return Err(HeadError::TooLong);
            }
            let value = longest_value(head).filter(|it| it.len() >= LEAST_LEFT_OUT);
            let value = value.ok_or(HeadError::TooLong)?;
            if value.end == head.len() {
                self.open = Some(value.start);
            } else if let Some(open) = &mut self.open {
                // It lay before the open one, which is the last.
                *open -= value.len();
            }
            self.leave_out(bytes, value)?;
        }
        Ok(self.open.is_none())
    }

    fn leave_out(&mut self, bytes: &mut BytesMut, part: Range<usize>) -> Result<(), HeadError> {
        self.left_out += part.len();
        let rest = bytes.split_off(part.end);
        bytes.truncate(part.start);
        bytes.extend_from_slice(&rest);
        if self.left_out > MOST_LEFT_OUT { Err(HeadError::TooLong) } else { Ok(()) }
    }
}

/// The size of a head that is whole: it ends with an empty line.
fn head_size(bytes: &[u8]) -> Option<usize> {
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    ends.map(|end| (end, &bytes[end..])).find_map(|(end, rest)| match rest {
        [b'\n', ..] => Some(end + 1),
        [b'\r', b'\n', ..] => Some(end + 2),
        _ => None,
    })
}

/// The longest value of a header: what stands between the colon and the line's end, or the end of what there is.
fn longest_value(head: &[u8]) -> Option<Range<usize>> {
    let mut longest = 0..0;
    let mut start = head.iter().position(|&byte| byte == b'\n')? + 1;
    while start < head.len() {
        let line = &head[start..];
        let end = line.iter().position(|&byte| byte == b'\n');
        let text = &line[..end.unwrap_or(line.len())];
        if let Some(colon) = text.iter().position(|&byte| byte == b':') {
            // Of an open line what ends it is still to come.
            let is_ended = end.is_some() && text.ends_with(b"\r");
            let value = start + colon + 1..start + text.len() - usize::from(is_ended);
            if value.len() > longest.len() {
                longest = value;
            }
        }
        start += text.len() + 1;
    }
    (!longest.is_empty()).then_some(longest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Length, RequestHead, parse_request};

    type Headers = Vec<(String, usize)>;

    /// Parses what arrives in pieces of this size; gives what of the body has come with it, too.
    fn parse(text: &[u8], piece: usize) -> Result<(RequestHead, Headers, BytesMut), HeadError> {
        let (mut shortener, mut bytes) = (Shortener::default(), BytesMut::new());
        for piece in text.chunks(piece) {
            bytes.extend_from_slice(piece);
            if !shortener.shorten(&mut bytes)? {
                continue;
            }
            let mut headers = Vec::new();
            let parsed = parse_request(&bytes, |name, value| {
                headers.push((name.to_owned(), value.len()));
            })?;
            if let Some((head, size)) = parsed {
                return Ok((head, headers, bytes.split_off(size)));
            }
        }
        Err(HeadError::TooLong)
    }

    fn head(headers: &[(&str, usize)]) -> Vec<u8> {
        let lines = headers.iter().map(|(name, size)| format!("{name}: {}\r\n", "x".repeat(*size)));
        format!("POST /a HTTP/1.1\r\nContent-Length: 4\r\n{}\r\nbody", lines.collect::<String>())
            .into_bytes()
    }

    #[test]
    fn the_longest_values_are_left_out() {
        for piece in [1 << 10, 16 << 10, 64 << 10, 1 << 21] {
            let text = head(&[("Cause", 70_000), ("Type", 10), ("Stack", 900_000)]);
            let (head, headers, rest) = parse(&text, piece).unwrap();
            assert_eq!((head.length, head.path.as_str()), (Length::Known(4), "/a"));
            let expected = [("Content-Length", 1), ("Cause", 0), ("Type", 10), ("Stack", 0)];
            assert_eq!(headers, expected.map(|(name, size)| (name.to_owned(), size)), "{piece}");
            assert!(b"body".starts_with(&rest));
        }
        // A large body is none of the head.
        let mut text = head(&[("Short", 5)]);
        text.extend(vec![b'\n'; 200_000]);
        assert_eq!(parse(&text, 1 << 20).unwrap().1[1], ("Short".to_owned(), 5));
    }

    #[test]
    fn what_is_too_long_all_the_same_is_refused() {
        let endless = head(&[("Cause", MOST_LEFT_OUT + MAX_HEAD_BYTES)]);
        let long_name = format!("GET / HTTP/1.1\r\n{}", "n".repeat(70_000)).into_bytes();
        let long_path = format!("GET /{} HTTP/1.1\r\n\r\n", "p".repeat(70_000)).into_bytes();
        let many = ["GET / HTTP/1.1\r\n", &"A:\n".repeat(30_000)].concat().into_bytes();
        assert!(parse(&many, 16 << 10).is_err());
        for text in [endless, long_name, long_path] {
            assert_eq!(parse(&text, 16 << 10), Err(HeadError::TooLong));
        }
        // All at once, and nothing of it is worth leaving out.
        let mut tiny = format!("GET /{}", "p".repeat(65_000)).into_bytes();
        tiny.extend(" HTTP/1.1\n".bytes().chain("A:b\n".bytes().cycle().take(64_000)));
        assert_eq!(parse(&tiny, 65_000), Err(HeadError::TooLong));
        for framing in ["Content-Length", "Transfer-Encoding"] {
            let text = format!("POST / HTTP/1.1\r\n{framing}: {}\r\n\r\n", "0".repeat(70_000));
            assert!(matches!(
                parse(text.as_bytes(), 16 << 10),
                Err(HeadError::ContentLength | HeadError::TransferEncoding)
            ));
        }
    }

    #[test]
    fn pieces_that_end_in_a_value_keep_nothing_long() {
        let piece = format!("\n{}:{}", "n".repeat(15_600), "v".repeat(600));
        let (mut shortener, mut bytes) = (Shortener::default(), BytesMut::from("GET / HTTP/1.1"));
        let mut refused = None;
        for _ in 0..10 {
            bytes.extend_from_slice(piece.as_bytes());
            refused = refused.or(shortener.shorten(&mut bytes).err());
            assert!(refused.is_some() || bytes.len() <= MAX_HEAD_BYTES, "{}", bytes.len());
        }
        assert_eq!(refused, Some(HeadError::TooLong));
        let lines = format!("A:{}\n", "v".repeat(600)).repeat(200);
        let mut bytes = BytesMut::from(format!("GET / HTTP/1.1\n{lines}").as_str());
        assert_eq!(Shortener::default().shorten(&mut bytes), Err(HeadError::TooLong));
    }

    proptest! {
        #[test]
        fn heads_are_read_as_without_what_was_left_out(
            sizes in prop::collection::vec(prop_oneof![0..200_usize, 0..120_000_usize], 1..8),
            piece in 1_000..200_000_usize,
        ) {
            let names = ["A", "B", "C", "D", "E", "F", "G"];
            let headers: Vec<_> = names.into_iter().zip(sizes).collect();
            let (head, seen, _) = parse(&head(&headers), piece).unwrap();
            prop_assert_eq!(head.length, Length::Known(4));
            for ((name, size), (seen, kept)) in headers.iter().zip(&seen[1..]) {
                prop_assert_eq!(name, &seen.as_str());
                prop_assert!(*kept == 0 || kept == size);
            }
        }

        #[test]
        fn garbage_never_panics_nor_stays_long(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b':'), any::<u8>()], 0..300),
            times in 1..1_000_usize,
        ) {
            let (mut shortener, mut kept) = (Shortener::default(), BytesMut::new());
            for _ in 0..times {
                kept.extend_from_slice(&bytes);
                if shortener.shorten(&mut kept).is_err() || head_size(&kept).is_some() {
                    break;
                }
                prop_assert!(kept.len() <= MAX_HEAD_BYTES);
            }
        }
    }
}
