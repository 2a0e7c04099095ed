//! Responses as the load generator reads them, in pieces of any size.
#![no_main]
#![allow(dead_code, unused_imports)]

#[path = "../../crates/load/src/answer.rs"]
mod answer;
#[path = "../../crates/load/src/http1/mod.rs"]
mod http1;
#[path = "../../crates/load/src/picker.rs"]
mod picker;

use http1::ResponseReader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u8, bool)| {
    let (bytes, piece, is_head_request) = input;
    let mut reader = ResponseReader::new();
    reader.start(is_head_request);
    for part in bytes.chunks(usize::from(piece).max(1)) {
        match reader.feed(part) {
            Ok(fed) if fed.done => return,
            Ok(fed) => assert_eq!(fed.consumed, part.len()),
            Err(_) => return,
        }
    }
    let _ = reader.end();
});
