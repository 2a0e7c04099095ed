//! The members that are picked out of a long JSON object.
#![no_main]
#![allow(dead_code)]

#[path = "../../crates/load/src/picker.rs"]
mod picker;

use libfuzzer_sys::fuzz_target;
use picker::Picker;

fuzz_target!(|input: (&[u8], u8)| {
    let (bytes, piece) = input;
    let mut whole = Picker::default();
    whole.take(bytes);
    let mut pieces = Picker::default();
    for part in bytes.chunks(usize::from(piece).max(1)) {
        pieces.take(part);
    }
    assert_eq!(whole.picked(), pieces.picked());
});
