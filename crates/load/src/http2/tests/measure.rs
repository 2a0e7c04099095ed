//! That many requests on one connection have their answers, and what one costs in CPU time, which is
//! printed.

use uncia_clock::thread_cpu_ns;

use super::frames::*;
use super::*;

const FEWEST_REQUESTS: u32 = 5_000;

/// CPU time of small requests and their answers, so many at once on one connection.
fn measure(at_once: u32) {
    let asked = std::env::var("UNCIA_REQUESTS").ok().and_then(|text| text.parse().ok());
    let requests = asked.unwrap_or(0).max(FEWEST_REQUESTS);
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
    let (mut sending, mut receiving) = (0, 0);
    for _ in 0..requests / at_once {
        let began = thread_cpu_ns();
        for key in 0..at_once {
            session.send(key, get("/function/hello"), Bytes::new()).unwrap();
        }
        let mut written = session.output().len();
        while written > 0 {
            session.wrote(written);
            written = session.output().len();
        }
        sending += thread_cpu_ns() - began;
        let mut input = Vec::new();
        for _ in 0..at_once {
            input.extend(frame(HEADERS, END_HEADERS, stream, &head));
            input.extend(frame(DATA, END_STREAM, stream, b"hello"));
            stream += 2;
        }
        let began = thread_cpu_ns();
        session.receive(&input, &mut events).unwrap();
        receiving += thread_cpu_ns() - began;
        assert_eq!(events.len(), 2 * at_once as usize);
        events.clear();
    }
    let us = |ns: i64| ns as f64 / 1e3 / f64::from(requests);
    let (sending, receiving) = (us(sending), us(receiving));
    println!("{at_once} at once: {sending:.2} us to send, {receiving:.2} us to receive");
}

/// Every request has its answer; what that costs is printed:
/// `UNCIA_REQUESTS=500000 cargo test --release -p uncia-load measure -- --nocapture`
#[test]
fn small_requests_and_their_answers() {
    for at_once in [1, 10, 100] {
        measure(at_once);
    }
}
