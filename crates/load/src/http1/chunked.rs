//! The chunked transfer coding (RFC 9112, 7.1).

use super::ResponseError;

/// Extensions and trailers together, over a whole response.
const MAX_EXTRA_BYTES: usize = 64 << 10;
/// Sizes of 2^60 bytes and more are nobody's.
const MAX_SIZE_DIGITS: u32 = 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the digits of a size; how many there were.
    Size(u32),
    /// After the size, until the end of its line.
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    /// At the start of a trailer line, which may be the empty one that ends the body.
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
    Done,
}

/// Takes the chunks apart.
#[derive(Debug, Clone)]
pub struct Decoder {
    state: State,
    /// The size being read, then what is left of the chunk.
    size: u64,
    extra: usize,
}

impl Decoder {
    pub fn new() -> Self {
        Self { state: State::Size(0), size: 0, extra: 0 }
    }

    /// Passes the data in `input` to `sink`; returns how much of `input` belongs to the body, and
    /// whether the body is complete.
    pub fn decode(
        &mut self,
        input: &[u8],
        mut sink: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), ResponseError> {
        let mut position = 0;
        while position < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let rest = &input[position..];
                let take = usize::try_from(self.size).map_or(rest.len(), |n| n.min(rest.len()));
                sink(&rest[..take]);
                position += take;
                self.size -= take as u64;
                if self.size == 0 {
                    self.state = State::DataReturn;
                }
            } else {
                self.state = self.step(input[position])?;
                position += 1;
            }
        }
        Ok((position, self.state == State::Done))
    }

    fn step(&mut self, byte: u8) -> Result<State, ResponseError> {
        let next = match (self.state, byte) {
            (State::Size(digits @ 0..MAX_SIZE_DIGITS), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                let so_far = if digits == 0 { 0 } else { self.size };
                self.size = so_far * 16 + u64::from(digit);
                State::Size(digits + 1)
            }
            (State::Size(1..), b';' | b' ' | b'\t') => State::Extension,
            (State::Size(1..), b'\r') => State::SizeLineFeed,
            (State::Size(_), _) => return Err(ResponseError::ChunkSize),
            (State::Extension, b'\r') => State::SizeLineFeed,
            (State::Extension, b'\n') => return Err(ResponseError::ChunkSize),
            (State::Extension, _) => self.count_extra(State::Extension)?,
            (State::SizeLineFeed, b'\n') if self.size == 0 => State::TrailerStart,
            (State::SizeLineFeed, b'\n') => State::Data,
            (State::SizeLineFeed, _) => return Err(ResponseError::ChunkSize),
            (State::DataReturn, b'\r') => State::DataLineFeed,
            (State::DataLineFeed, b'\n') => State::Size(0),
            (State::TrailerStart, b'\r') => State::LastLineFeed,
            (State::TrailerStart | State::Trailer, b'\n') => return Err(ResponseError::ChunkEnd),
            (State::Trailer, b'\r') => State::TrailerLineFeed,
            (State::TrailerStart | State::Trailer, _) => self.count_extra(State::Trailer)?,
            (State::TrailerLineFeed, b'\n') => State::TrailerStart,
            (State::LastLineFeed, b'\n') => State::Done,
            _ => return Err(ResponseError::ChunkEnd),
        };
        Ok(next)
    }

    fn count_extra(&mut self, next: State) -> Result<State, ResponseError> {
        self.extra += 1;
        if self.extra > MAX_EXTRA_BYTES {
            return Err(ResponseError::TrailersTooLong { limit: MAX_EXTRA_BYTES });
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(input: &[u8]) -> Result<(Vec<u8>, usize, bool), ResponseError> {
        let mut data = Vec::new();
        let (used, done) = Decoder::new().decode(input, |part| data.extend_from_slice(part))?;
        Ok((data, used, done))
    }

    #[test]
    fn chunks_extensions_and_trailers() {
        let body = b"4\r\nWiki\r\nA;x=\"y\"\r\npedia in \n\r\n00\r\nT: 1\r\nU: 2\r\n\r\nrest";
        let (data, used, done) = decode(body).unwrap();
        assert_eq!(data, b"Wikipedia in \n");
        assert_eq!((used, done), (body.len() - 4, true));
        assert_eq!(decode(b"5\r\nhel").unwrap(), (b"hel".to_vec(), 6, false));
    }

    #[test]
    fn what_is_not_chunked_is_refused() {
        for bad in ["\r\n", "x\r\n", "-1\r\n", "5\n", "1000000000000000\r\n", "5;a\n"] {
            assert_eq!(decode(bad.as_bytes()), Err(ResponseError::ChunkSize), "{bad:?}");
        }
        for bad in ["1\r\nab", "1\r\na\n", "0\r\n\n", "0\r\nT: 1\n"] {
            assert_eq!(decode(bad.as_bytes()), Err(ResponseError::ChunkEnd), "{bad:?}");
        }
        let endless = format!("0\r\nT: {}", "x".repeat(MAX_EXTRA_BYTES));
        assert!(matches!(decode(endless.as_bytes()), Err(ResponseError::TrailersTooLong { .. })));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_data(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
            cuts in prop::collection::vec(1usize..10, 1..60)
        ) {
            let mut encoded = Vec::new();
            for chunk in &chunks {
                encoded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                encoded.extend_from_slice(chunk);
                encoded.extend_from_slice(b"\r\n");
            }
            encoded.extend_from_slice(b"0\r\n\r\n");
            let (mut decoder, mut data, mut rest) = (Decoder::new(), Vec::new(), &encoded[..]);
            let mut finished = false;
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                let (used, done) = decoder.decode(piece, |part| data.extend_from_slice(part)).unwrap();
                prop_assert_eq!(used, piece.len());
                finished = done;
                rest = after;
                if rest.is_empty() { break; }
            }
            prop_assert!(finished);
            prop_assert_eq!(data, chunks.concat());
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }
    }
}
