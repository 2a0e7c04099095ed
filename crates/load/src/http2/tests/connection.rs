//! What happens on a connection, frame by frame.

use h2::Reason;

use super::frames::*;
use super::*;

fn written(session: &mut Session) -> Vec<u8> {
    let mut written = Vec::new();
    loop {
        let output = session.output().to_vec();
        if output.is_empty() {
            return written;
        }
        written.extend_from_slice(&output);
        session.wrote(output.len());
    }
}

/// A session whose peer has sent SETTINGS, with requests 0.. on streams 1, 3, ...
fn session(requests: u32) -> Session {
    let mut session = Session::new(Limits::default());
    session.receive(&settings(&[]), &mut Vec::new()).unwrap();
    for key in 0..requests {
        session.send(key, get("/"), Bytes::new()).unwrap();
    }
    written(&mut session);
    session
}

fn receive(session: &mut Session, input: &[u8]) -> Vec<SessionEvent> {
    let mut events = Vec::new();
    session.receive(input, &mut events).ok();
    events
}

fn end(session: &mut Session) -> Vec<SessionEvent> {
    let mut events = Vec::new();
    session.end(&mut events);
    assert_eq!((session.open_streams(), session.capacity()), (0, 0));
    assert!(session.is_over());
    events
}

#[test]
fn it_begins_with_preface_settings_and_a_window() {
    let mut session = Session::new(Limits::default());
    let output = written(&mut session);
    assert!(output.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    let frames = parse(&output);
    assert_eq!((frames[0].0, frames[0].1, frames[0].2), (SETTINGS, 0, 0));
    let values: Vec<_> = frames[0].3.chunks(6).map(<[u8]>::to_vec).collect();
    assert!(values.contains(&vec![0, 2, 0, 0, 0, 0]), "push is off: {values:?}");
    assert!(values.contains(&vec![0, 4, 0, 0x40, 0, 0]), "4 MiB for a stream: {values:?}");
    let more = (16_u32 << 20) - 65_535;
    assert_eq!(frames[1], (WINDOW_UPDATE, 0, 0, more.to_be_bytes().to_vec()));
    assert_eq!(session.capacity(), 100);
}

#[test]
fn interim_answers_and_pings_are_no_events() {
    let mut session = session(1);
    let mut input = frame(HEADERS, END_HEADERS, 1, EARLY_HINTS);
    input.extend(frame(PING, 0, 0, b"12345678"));
    assert_eq!(receive(&mut session, &input), []);
    assert_eq!(parse(&written(&mut session)), [(PING, ACK, 0, b"12345678".to_vec())]);
    let expected = Answer { status: 200, body_bytes: 5, ..Answer::default() };
    assert_eq!(answer(&receive(&mut session, &hello(1))), expected);
}

#[test]
fn a_head_is_an_event_before_its_body() {
    let mut session = session(1);
    let head = frame(HEADERS, END_HEADERS, 1, OK);
    assert_eq!(receive(&mut session, &head), [SessionEvent::Head { key: 0 }]);
    assert_eq!(receive(&mut session, &frame(DATA, 0, 1, b"{")), []);
    let events = receive(&mut session, &frame(DATA, END_STREAM, 1, b"}"));
    assert!(matches!(&events[..], [SessionEvent::Done { key: 0, answer }] if answer.body == b"{}"));
}

#[test]
fn answers_come_in_any_order() {
    let mut session = session(3);
    let input = [hello(5), hello(1), hello(3)].concat();
    let events = receive(&mut session, &input);
    let keys = events.iter().filter_map(|event| match event {
        SessionEvent::Done { key, .. } => Some(*key),
        _ => None,
    });
    assert_eq!(keys.collect::<Vec<_>>(), [2, 0, 1]);
}

#[test]
fn what_goaway_leaves_out_fails_and_the_rest_finishes() {
    let mut session = session(3);
    let events = receive(&mut session, &go_away(3, 0, b""));
    let unprocessed = SessionError::Unprocessed { reason: Reason::NO_ERROR, said: String::new() };
    assert_eq!(failure(&events), (unprocessed, false, None));
    assert_eq!(events.len(), 1);
    assert_eq!((session.capacity(), session.open_streams()), (0, 2));
    // The last answers and the end of everything in one piece.
    let events = receive(&mut session, &[hello(1), hello(3)].concat());
    assert_eq!(events.len(), 4);
    assert!(session.is_over());
    assert_eq!(end(&mut session), []);
}

#[test]
fn an_answer_and_goaway_in_one_piece() {
    let mut session = session(1);
    let events = receive(&mut session, &[hello(1), go_away(1, 0, b"")].concat());
    assert_eq!(answer(&events).status, 200);
    assert!(session.is_over());
}

#[test]
fn why_the_server_gave_up_is_told() {
    let mut session = session(2);
    let events = receive(&mut session, &go_away(1, 11, b"too_many"));
    let (error, wrote, _) = failure(&events);
    assert!(!wrote);
    let expected = "the server went away without taking the request: detected excessive load \
                    generating behavior (ENHANCE_YOUR_CALM: too_many)";
    assert_eq!(error.to_string(), expected);
    let (error, wrote, _) = failure(&end(&mut session));
    assert!(wrote);
    let expected = "the server gave the connection up: detected excessive load generating \
                    behavior (ENHANCE_YOUR_CALM: too_many)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn resets_are_told_by_their_reason() {
    let mut session = session(3);
    let (error, wrote, _) = failure(&receive(&mut session, &reset(1, 7)));
    assert_eq!((error, wrote), (SessionError::Reset(Reason::REFUSED_STREAM), false));
    let (error, wrote, _) = failure(&receive(&mut session, &reset(3, 13)));
    let expected = "the server reset the request: endpoint requires HTTP/1.1 (HTTP_1_1_REQUIRED)";
    assert_eq!((error.to_string().as_str(), wrote), (expected, true));
    // A complete answer stays one, whatever follows it.
    let events = receive(&mut session, &[hello(5), reset(5, 0)].concat());
    assert_eq!(answer(&events).status, 200);
}

#[test]
fn an_end_in_the_middle_is_told() {
    assert_eq!(failure(&end(&mut session(1))), (SessionError::NoAnswer, true, None));

    let mut some = session(1);
    let head = [OK, b"\x0f\x0d\x0210"].concat();
    receive(&mut some, &frame(HEADERS, END_HEADERS, 1, &head));
    receive(&mut some, &frame(DATA, 0, 1, b"half"));
    let (error, _, answer) = failure(&end(&mut some));
    assert_eq!(error, SessionError::EndedInBody { received: 4, expected: 10 });
    assert_eq!(answer.unwrap().body_bytes, 4);

    let mut some = session(1);
    receive(&mut some, &frame(HEADERS, END_HEADERS, 1, OK));
    receive(&mut some, &frame(DATA, 0, 1, b"half"));
    // Within a frame, even.
    receive(&mut some, &[0, 0, 5, DATA]);
    let (error, ..) = failure(&end(&mut some));
    assert_eq!(error, SessionError::EndedInStream { received: 4 });
}

#[test]
fn a_peer_of_another_protocol_is_told_to_all_requests() {
    let mut session = Session::new(Limits::default());
    session.send(1, get("/"), Bytes::new()).unwrap();
    session.send(2, get("/"), Bytes::new()).unwrap();
    written(&mut session);
    let mut events = Vec::new();
    let said = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    let error = session.receive(said, &mut events).unwrap_err();
    let expected = "the server does not speak HTTP/2: it said \"HTTP/1.1 400 Bad Request\"";
    assert_eq!(error.to_string(), expected);
    assert_eq!(events.len(), 2);
    assert_eq!(failure(&events), (error, true, None));
    assert!(session.is_over());
}

#[test]
fn what_was_not_written_was_not_processed() {
    let mut session = session(0);
    session.send(1, get("/"), Bytes::new()).unwrap();
    session.send(2, get("/"), Bytes::new()).unwrap();
    session.output();
    let events = end(&mut session);
    assert_eq!(events.len(), 2);
    for event in events {
        assert_eq!(failure(&[event]), (SessionError::NoAnswer, false, None));
    }
}

#[test]
fn an_invalid_answer_fails_its_request_alone() {
    let mut session = session(2);
    // More than its Content-Length.
    let head = [OK, b"\x0f\x0d\x011"].concat();
    let input = [frame(HEADERS, END_HEADERS, 1, &head), frame(DATA, END_STREAM, 1, b"two")];
    let (error, wrote, _) = failure(&receive(&mut session, &input.concat()));
    assert_eq!((error, wrote), (SessionError::InvalidAnswer(Reason::PROTOCOL_ERROR), true));
    assert_eq!(answer(&receive(&mut session, &hello(3))).status, 200);
}

#[test]
fn broken_rules_end_the_connection_for_all() {
    let mut session = session(3);
    let mut events = Vec::new();
    // An answer to nothing that was asked.
    let input = [hello(3), hello(99)].concat();
    let error = session.receive(&input, &mut events).unwrap_err();
    assert!(matches!(error, SessionError::Protocol { reason: Reason::PROTOCOL_ERROR, .. }));
    let done = events.iter().filter(|event| matches!(event, SessionEvent::Done { key: 1, .. }));
    assert_eq!(done.count(), 1);
    let failed: Vec<_> =
        events.iter().filter(|event| matches!(event, SessionEvent::Failed { .. })).collect();
    assert_eq!(failed.len(), 2);
    assert_eq!(failure(&[failed[0].clone()]).0, error);
    assert_eq!(session.receive(b"more", &mut events), Err(error.clone()));
    assert_eq!(session.send(9, get("/"), Bytes::new()), Err(error));
    // The peer is told.
    assert!(parse(&written(&mut session)).iter().any(|frame| frame.0 == GOAWAY));
}

#[test]
fn bodies_wait_for_windows() {
    let mut session = Session::new(Limits::default());
    // Streams of 10,000 bytes.
    session.receive(&settings(&[(4, 10_000)]), &mut Vec::new()).unwrap();
    session.send(1, post("/"), vec![1; 100_000].into()).unwrap();
    session.send(2, post("/"), vec![2; 12_000].into()).unwrap();
    let mut sent = [0; 2];
    let mut see = |session: &mut Session| {
        for (kind, flags, stream, payload) in parse(&written(session)) {
            if kind == DATA {
                sent[stream as usize / 2] += payload.len();
                let is_all = sent[stream as usize / 2] == [100_000, 12_000][stream as usize / 2];
                assert_eq!(flags & END_STREAM != 0, is_all);
            }
        }
        sent
    };
    assert_eq!(see(&mut session), [10_000, 10_000]);
    let grant = |stream: u32, bytes: u32| frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    receive(&mut session, &grant(1, 500));
    assert_eq!(see(&mut session), [10_500, 10_000]);
    receive(&mut session, &grant(3, 10_000));
    assert_eq!(see(&mut session), [10_500, 12_000]);
    receive(&mut session, &grant(1, 1_000_000));
    // Now the connection's first window is the limit.
    assert_eq!(see(&mut session), [65_535 - 12_000, 12_000]);
    receive(&mut session, &grant(0, 1_000_000));
    assert_eq!(see(&mut session), [100_000, 12_000]);
}

#[test]
fn a_peer_that_takes_nothing_fills_no_memory() {
    let mut session = Session::new(Limits::default());
    let most = 0x7fff_ffff_u32;
    let grant = frame(WINDOW_UPDATE, 0, 0, &(most - 65_535).to_be_bytes());
    receive(&mut session, &[settings(&[(4, most)]), grant].concat());
    for key in 0..20 {
        session.send(key, post("/"), vec![1; 8 << 20].into()).unwrap();
    }
    let mut output = session.output().len();
    for _ in 0..100 {
        // It takes hardly anything.
        session.wrote(10);
        assert!(session.output().len() <= output);
        output = session.output().len();
    }
    assert!(output < 512 << 10, "{output}");
    assert_eq!(receive(&mut session, &hello(39)).len(), 2);
    for key in 0..20 {
        session.cancel(key);
    }
    assert_eq!(session.open_streams(), 0);
    assert!(written(&mut session).len() < 1 << 20, "what was given up is not sent");
}

#[test]
fn the_peer_s_window_is_opened_again() {
    let limits = Limits { connection_window: 1 << 20, stream_window: 1 << 20, ..Limits::default() };
    let mut session = Session::new(limits);
    session.receive(&settings(&[]), &mut Vec::new()).unwrap();
    session.send(0, get("/"), Bytes::new()).unwrap();
    written(&mut session);
    // The window of a stream holds once SETTINGS are acknowledged.
    receive(&mut session, &frame(SETTINGS, ACK, 0, b""));
    receive(&mut session, &frame(HEADERS, END_HEADERS, 1, OK));
    let mut granted = [1_i64 << 20; 2];
    for _ in 0..1000 {
        let data = frame(DATA, 0, 1, &[0; 16 << 10]);
        assert_eq!(receive(&mut session, &data), []);
        for (kind, _, stream, payload) in parse(&written(&mut session)) {
            assert_eq!(kind, WINDOW_UPDATE);
            granted[stream as usize] += i64::from(u32::from_be_bytes(payload.try_into().unwrap()));
        }
        granted = granted.map(|bytes| bytes - (16 << 10));
        assert!(granted.iter().all(|&bytes| bytes > 256 << 10), "{granted:?}");
    }
}

#[test]
fn small_frames_in_any_number_are_taken() {
    let mut session = session(1);
    receive(&mut session, &frame(HEADERS, END_HEADERS, 1, OK));
    for _ in 0..20 {
        assert_eq!(receive(&mut session, &frame(DATA, 0, 1, b"x").repeat(10_000)), []);
    }
    let events = receive(&mut session, &frame(DATA, END_STREAM, 1, b"x"));
    assert!(
        matches!(&events[..], [SessionEvent::Done { answer, .. }] if answer.body_bytes == 200_001)
    );
}

#[test]
fn many_requests_may_be_given_up() {
    let mut session = session(0);
    for round in 0..5_000_u32 {
        let stream = 2 * round + 1;
        session.send(7, get("/"), Bytes::new()).unwrap();
        // Beside it, answers may be reset that came too late to be remembered.
        let sent = parse(&written(&mut session));
        assert!(sent.iter().any(|frame| (frame.0, frame.2) == (HEADERS, stream)));
        session.cancel(7);
        assert_eq!(parse(&written(&mut session)), [(RST_STREAM, 0, stream, vec![0, 0, 0, 8])]);
        // The answer was on its way.
        assert_eq!(receive(&mut session, &hello(stream)), []);
        assert!(!session.is_over());
    }
}

#[test]
fn requests_that_http2_cannot_carry_are_refused() {
    let mut session = session(0);
    let relative = Request::get("/path").body(()).unwrap();
    let error = session.send(1, relative, Bytes::new()).unwrap_err();
    let expected = "the request cannot be sent by HTTP/2: `/path` is not an absolute URI";
    assert_eq!(error.to_string(), expected);
    let upgrade = Request::get("http://a/").header("connection", "close").body(()).unwrap();
    let error = session.send(1, upgrade, Bytes::new()).unwrap_err();
    assert!(matches!(error, SessionError::InvalidRequest(_)), "{error}");
    session.send(1, get("/"), Bytes::new()).unwrap();
    let stream = parse(&written(&mut session))[0].2;
    assert_eq!(answer(&receive(&mut session, &hello(stream))).status, 200);
}
