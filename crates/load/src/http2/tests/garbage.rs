//! Whatever comes, nothing panics, and every request ends once and only once.

use proptest::prelude::*;

use super::frames::*;
use super::*;

/// Feeds `input` in pieces to a session with some requests; then the connection ends.
fn run(input: &[u8], piece: usize) -> Vec<SessionEvent> {
    let mut session = Session::new(Limits::default());
    for key in 0..4 {
        session.send(key, get("/"), Bytes::new()).unwrap();
    }
    session.send(4, post("/"), vec![1; 100_000].into()).unwrap();
    let mut events = Vec::new();
    for (at, bytes) in input.chunks(piece).enumerate() {
        let size = session.output().len().div_ceil(2);
        session.wrote(size);
        if session.receive(bytes, &mut events).is_err() {
            assert!(session.is_over());
        }
        if at == 10 {
            session.cancel(2);
        }
    }
    session.end(&mut events);
    assert!(session.is_over());
    assert_eq!((session.open_streams(), session.capacity()), (0, 0));
    let mut ends = [0; 5];
    for event in &events {
        match event {
            SessionEvent::Head { key } => assert_eq!(ends[*key as usize], 0),
            SessionEvent::Done { key, .. } | SessionEvent::Failed { key, .. } => {
                ends[*key as usize] += 1;
            }
        }
    }
    assert!(ends[2] <= 1);
    ends[2] = 1;
    assert_eq!(ends, [1; 5], "{events:?}");
    events
}

/// Frames that are right in their form and mostly wrong in their place.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![
        Just(OK.to_vec()),
        Just(EARLY_HINTS.to_vec()),
        Just(vec![0, 0, 0, 1]),
        Just(vec![0; 8]),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let flags = prop_oneof![Just(0), Just(1), Just(4), Just(5), any::<u8>()];
    let stream = prop_oneof![Just(0), Just(1), Just(3), Just(5), Just(7), Just(9), 0..40_u32];
    (0..11_u8, flags, stream, payload)
        .prop_map(|(kind, flags, stream, payload)| frame(kind, flags, stream, &payload))
}

proptest! {
    #[test]
    fn bytes(input in prop::collection::vec(any::<u8>(), 0..500), piece in 1..50_usize) {
        run(&input, piece);
        run(&[settings(&[]), input].concat(), piece);
    }

    #[test]
    fn frames(
        values in prop::collection::vec((0..8_u16, any::<u32>()), 0..3),
        frames in prop::collection::vec(any_frame(), 0..30),
        piece in prop_oneof![Just(1_usize), 1..200_usize],
    ) {
        run(&[settings(&values), frames.concat()].concat(), piece);
    }

    /// However the input is cut, the same comes of it.
    #[test]
    fn cuts(order in Just([1, 3, 7, 9]).prop_shuffle(), piece in 1..300_usize) {
        let answers: Vec<_> = order.into_iter().flat_map(hello).collect();
        let input = [settings(&[(3, 10)]), answers].concat();
        let sorted = |piece| {
            let mut events: Vec<_> =
                run(&input, piece).iter().map(|event| format!("{event:?}")).collect();
            events.retain(|event| !event.contains("key: 2"));
            events.sort();
            events
        };
        prop_assert_eq!(sorted(piece), sorted(usize::MAX));
    }
}
