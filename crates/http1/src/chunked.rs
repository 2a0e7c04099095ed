//! The chunked transfer coding (RFC 9112, 7.1).

/// Longest trailers, all of them together.
pub const MAX_TRAILER_BYTES: usize = 64 << 10;
/// Bytes of framing (sizes, extensions, line ends) that a body may have whatever it holds.
const FREE_FRAMING_BYTES: u64 = 64 << 10;
/// Bytes of framing for each byte of content beyond that: chunks of one byte, written as everybody
/// writes them, have 5.
const MAX_FRAMING_RATIO: u64 = 8;
/// Sizes of 2^60 bytes and more are nobody's.
const MAX_SIZE_DIGITS: u32 = 15;

/// Why bytes are not a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// A chunk does not begin with a size.
    #[error("a chunk has no valid size")]
    Size,
    /// A line end is missing after a chunk or a trailer.
    #[error("a chunk does not end where its size says")]
    End,
    /// Far more is said about the content than there is content.
    #[error("the framing of the chunks is more than {MAX_FRAMING_RATIO} times their content")]
    Framing,
    /// Trailers beyond [`MAX_TRAILER_BYTES`].
    #[error("the trailers are longer than {MAX_TRAILER_BYTES} bytes")]
    Trailers,
}

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
    chunks: u64,
    content: u64,
    framing: u64,
    trailers: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Expects a body from its first byte.
    pub fn new() -> Self {
        Self {
            state: State::Size(0),
            size: 0,
            chunks: 0,
            content: 0,
            framing: 0,
            trailers: Vec::new(),
        }
    }

    /// How many chunks there were so far.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Bytes of data so far.
    pub fn content(&self) -> u64 {
        self.content
    }

    /// The trailers of a complete body: names and values.
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.trailers.split(|&byte| byte == b'\n').filter_map(|line| {
            let colon = line.iter().position(|&byte| byte == b':')?;
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            Some((name.trim(), line[colon + 1..].trim_ascii()))
        })
    }

    /// Passes the data in `input` to `sink`; returns how much of `input` belongs to the body, and
    /// whether the body is complete.
    pub fn decode(
        &mut self,
        input: &[u8],
        mut sink: impl FnMut(&[u8]),
    ) -> Result<(usize, bool), ChunkError> {
        let mut position = 0;
        while position < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let rest = &input[position..];
                let take = usize::try_from(self.size).map_or(rest.len(), |n| n.min(rest.len()));
                sink(&rest[..take]);
                position += take;
                self.size -= take as u64;
                self.content += take as u64;
                if self.size == 0 {
                    self.state = State::DataReturn;
                }
            } else {
                self.state = self.step(input[position])?;
                position += 1;
                self.framing += 1;
            }
        }
        // A chunk whose data is still to come may make up for it.
        let promised = if self.state == State::Data { self.size } else { 0 };
        let content = self.content.saturating_add(promised);
        if self.framing > content.saturating_mul(MAX_FRAMING_RATIO) + FREE_FRAMING_BYTES {
            return Err(ChunkError::Framing);
        }
        Ok((position, self.state == State::Done))
    }

    fn step(&mut self, byte: u8) -> Result<State, ChunkError> {
        let next = match (self.state, byte) {
            (State::Size(digits @ 0..MAX_SIZE_DIGITS), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                let so_far = if digits == 0 { 0 } else { self.size };
                self.size = so_far * 16 + u64::from(digit);
                State::Size(digits + 1)
            }
            (State::Size(1..), b';' | b' ' | b'\t') => State::Extension,
            (State::Size(1..), b'\r') => State::SizeLineFeed,
            (State::Size(_), _) => return Err(ChunkError::Size),
            (State::Extension, b'\r') => State::SizeLineFeed,
            (State::Extension, b'\n') => return Err(ChunkError::Size),
            (State::Extension, _) => State::Extension,
            (State::SizeLineFeed, b'\n') if self.size == 0 => State::TrailerStart,
            (State::SizeLineFeed, b'\n') => {
                self.chunks += 1;
                State::Data
            }
            (State::SizeLineFeed, _) => return Err(ChunkError::Size),
            (State::DataReturn, b'\r') => State::DataLineFeed,
            (State::DataLineFeed, b'\n') => State::Size(0),
            (State::TrailerStart, b'\r') => State::LastLineFeed,
            (State::TrailerStart | State::Trailer, b'\n') => return Err(ChunkError::End),
            (State::Trailer, b'\r') => {
                self.keep_trailer(b'\n')?;
                State::TrailerLineFeed
            }
            (State::TrailerStart | State::Trailer, _) => {
                self.keep_trailer(byte)?;
                State::Trailer
            }
            (State::TrailerLineFeed, b'\n') => State::TrailerStart,
            (State::LastLineFeed, b'\n') => State::Done,
            _ => return Err(ChunkError::End),
        };
        Ok(next)
    }

    fn keep_trailer(&mut self, byte: u8) -> Result<(), ChunkError> {
        if self.trailers.len() >= MAX_TRAILER_BYTES {
            return Err(ChunkError::Trailers);
        }
        self.trailers.push(byte);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(input: &[u8]) -> Result<(Vec<u8>, usize, bool), ChunkError> {
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
            assert_eq!(decode(bad.as_bytes()), Err(ChunkError::Size), "{bad:?}");
        }
        for bad in ["1\r\nab", "1\r\na\n", "0\r\n\n", "0\r\nT: 1\n"] {
            assert_eq!(decode(bad.as_bytes()), Err(ChunkError::End), "{bad:?}");
        }
        let endless = format!("0\r\nT: {}", "x".repeat(MAX_TRAILER_BYTES));
        assert_eq!(decode(endless.as_bytes()), Err(ChunkError::Trailers));
    }

    #[test]
    fn trailers_are_kept() {
        let mut decoder = Decoder::new();
        decoder.decode(b"1\r\na\r\n0\r\nA: b \r\nnone\r\nC:d\r\n\r\n", |_| {}).unwrap();
        assert_eq!((decoder.chunks(), decoder.content()), (1, 1));
        let trailers: Vec<_> = decoder.trailers().collect();
        assert_eq!(trailers, [("A", &b"b"[..]), ("C", &b"d"[..])]);
    }

    #[test]
    fn framing_is_bounded_by_the_content() {
        let feed = |piece: &str, times: usize| {
            let mut decoder = Decoder::new();
            (0..times).try_for_each(|_| decoder.decode(piece.as_bytes(), |_| {}).map(drop))
        };
        assert_eq!(feed("1\r\nx\r\n", 100_000), Ok(()));
        assert_eq!(feed("000000000000001\r\nx\r\n", 100_000), Err(ChunkError::Framing));
        let extension = format!("1;{}\r\nx\r\n", "e".repeat(50));
        assert_eq!(feed(&extension, 100_000), Err(ChunkError::Framing));
        let extension = format!("20;{}\r\n{}\r\n", "e".repeat(50), "x".repeat(32));
        assert_eq!(feed(&extension, 100_000), Ok(()));
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
