//! Frames of a server, made by hand.

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;

pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const ACK: u8 = 1;

/// `:status: 200`, by the static table.
pub(super) const OK: &[u8] = &[0x88];
/// `:status: 103`, literal.
pub(super) const EARLY_HINTS: &[u8] = b"\x08\x03103";

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()];
    [&head.concat(), payload].concat()
}

pub(super) fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    let values = values
        .iter()
        .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
    frame(SETTINGS, 0, 0, &values.collect::<Vec<_>>())
}

pub(super) fn go_away(last_stream: u32, reason: u32, said: &[u8]) -> Vec<u8> {
    let numbers = [last_stream.to_be_bytes(), reason.to_be_bytes()].concat();
    frame(GOAWAY, 0, 0, &[&numbers, said].concat())
}

pub(super) fn reset(stream: u32, reason: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &reason.to_be_bytes())
}

/// A whole answer.
pub(super) fn hello(stream: u32) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, OK);
    [head, frame(DATA, END_STREAM, stream, b"hello")].concat()
}

/// The frames of a client: type, flags, stream and payload. The preface is left out.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    bytes = bytes.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(bytes);
    let mut frames = Vec::new();
    while let [a, b, c, kind, flags, s0, s1, s2, s3, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
        frames.push((*kind, *flags, stream, rest[..length].to_vec()));
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "a frame is cut");
    frames
}
