//! What a request costs, as a figure to look at.

use std::time::Instant;

use super::frames::*;
use super::*;

/// `cargo test --release -p uncia-load measure -- --ignored --nocapture`: CPU time of a small request
/// and its answer, with 100 at once on one connection.
#[test]
#[ignore = "a measurement, not a test"]
fn a_small_request_and_its_answer() {
    const AT_ONCE: u32 = 100;
    const ROUNDS: u32 = 5_000;
    // What a server says beside the status: content-type, content-length and date, not indexed.
    let fields = [
        OK,
        b"\x0f\x10\x0atext/plain",
        b"\x0f\x0d\x015",
        b"\x0f\x12\x1dThu, 01 Jan 2026 00:00:00 GMT",
    ];
    let head = fields.concat();
    let mut session = Session::new(Limits::default());
    let mut events = Vec::new();
    session.receive(&settings(&[(3, 200)]), &mut events).unwrap();
    let mut stream = 1;
    let (mut sending, mut receiving) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for key in 0..AT_ONCE {
            session.send(key, get("/function/hello"), Bytes::new()).unwrap();
        }
        let mut written = session.output().len();
        while written > 0 {
            session.wrote(written);
            written = session.output().len();
        }
        sending += began.elapsed();
        let mut input = Vec::new();
        for _ in 0..AT_ONCE {
            input.extend(frame(HEADERS, END_HEADERS, stream, &head));
            input.extend(frame(DATA, END_STREAM, stream, b"hello"));
            stream += 2;
        }
        let began = Instant::now();
        session.receive(&input, &mut events).unwrap();
        receiving += began.elapsed();
        assert_eq!(events.len(), 2 * AT_ONCE as usize);
        events.clear();
    }
    let requests = f64::from(AT_ONCE * ROUNDS);
    let us = |time: Duration| time.as_secs_f64() * 1e6 / requests;
    println!("us per request: {:.2} to send, {:.2} to receive", us(sending), us(receiving));
}
