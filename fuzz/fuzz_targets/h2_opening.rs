//! How a server's side of an HTTP/2 connection begins.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/load/src/http2/error.rs"]
mod error;
#[path = "../../crates/load/src/http2/opening.rs"]
mod opening;

use error::SessionError;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, piece) = input;
    let mut opening = opening::Opening::default();
    let mut passed = Vec::new();
    for part in bytes.chunks(usize::from(piece).max(1)) {
        match opening.feed(part) {
            Ok(good) => passed.extend_from_slice(good),
            Err(_) => return,
        }
    }
    if opening.end().is_ok() {
        assert_eq!(passed, bytes, "what is good is passed on as it is");
    }
});
