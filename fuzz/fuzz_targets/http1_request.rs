//! Requests of the Runtime API: heads, and chunked bodies in pieces of any size.
#![no_main]

use libfuzzer_sys::fuzz_target;
use uncia_http1::chunked::{ChunkError, Decoder};
use uncia_http1::{Length, parse_request};

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, piece) = input;
    let body = match parse_request(bytes, |_, _| {}) {
        Ok(Some((head, size))) if head.length == Length::Chunked => &bytes[size..],
        Ok(Some(_) | None) => return,
        // Not a head; perhaps a body.
        Err(_) => bytes,
    };
    let whole = decode(body, body.len().max(1));
    let pieces = decode(body, usize::from(piece).max(1));
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(_), Err(_)) => {}
        // Pieces are checked one by one, the whole at its end.
        (_, Err(ChunkError::Framing)) => {}
        other => panic!("{other:?}"),
    }
});

fn decode(body: &[u8], piece: usize) -> Result<(Vec<u8>, usize, bool), ChunkError> {
    let (mut decoder, mut data, mut used) = (Decoder::new(), Vec::new(), 0);
    for part in body.chunks(piece) {
        let (count, done) = decoder.decode(part, |part| data.extend_from_slice(part))?;
        used += count;
        if done {
            assert!(decoder.trailers().all(|(name, _)| !name.contains('\n')));
            return Ok((data, used, true));
        }
        assert_eq!(count, part.len());
    }
    assert_eq!(decoder.content(), data.len() as u64);
    Ok((data, used, false))
}
