//! Against a real server, over real sockets.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Response};
use http_body_util::BodyExt;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::sync::Notify;

use super::*;
use crate::http1;

/// A body of given frames; `WouldBlock` among them is a pause.
struct Frames(VecDeque<io::Result<Frame<Bytes>>>);

impl Frames {
    fn of(data: impl Into<Bytes>) -> Self {
        Self([Ok(Frame::data(data.into()))].into())
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.0.pop_front() {
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                let waker = context.waker().clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    waker.wake();
                });
                Poll::Pending
            }
            next => Poll::Ready(next),
        }
    }
}

#[derive(Default)]
struct State {
    goodbye: Notify,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
}

impl State {
    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Response<Frames>> {
        let now = self.under_way.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_under_way.fetch_max(now, Ordering::Relaxed);
        let response = self.respond(request).await;
        self.under_way.fetch_sub(1, Ordering::Relaxed);
        response
    }

    async fn respond(&self, request: Request<Incoming>) -> io::Result<Response<Frames>> {
        let response = Response::builder();
        let path = request.uri().path().to_owned();
        let response = match path.as_str() {
            "/json" => response
                .header("X-Uncia-Start", "cold")
                .header("server", "test")
                .body(Frames::of("{\"uncia\":{}}")),
            "/bad" => response.status(502).body(Frames::of("bad gateway")),
            "/empty" => response.status(204).body(Frames(VecDeque::new())),
            "/echo" => {
                let body = request.into_body().collect().await.map_err(io::Error::other)?;
                response.body(Frames::of(body.to_bytes()))
            }
            // The answer before the request has been read.
            "/early" => response.status(413).body(Frames::of("too much")),
            "/large" => {
                let pieces = (0..512).map(|_| Ok(Frame::data(vec![b'x'; 64 << 10].into())));
                response.body(Frames(pieces.collect()))
            }
            "/trailers" => {
                let mut trailers = HeaderMap::new();
                trailers.insert("x-checksum", http::HeaderValue::from_static("1"));
                let frames = [Ok(Frame::data("hello".into())), Ok(Frame::trailers(trailers))];
                response.body(Frames(frames.into()))
            }
            "/break" => {
                // Without the pause the reset would overtake the rest.
                let pause = Err(io::ErrorKind::WouldBlock.into());
                let broken = Err(io::Error::other("broken"));
                let frames = [Ok(Frame::data("half".into())), pause, broken];
                response.body(Frames(frames.into()))
            }
            "/later" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                response.body(Frames::of("later"))
            }
            "/never" => std::future::pending().await,
            "/goodbye" => {
                self.goodbye.notify_one();
                response.body(Frames::of("goodbye"))
            }
            path => response.body(Frames::of(path.to_owned())),
        };
        response.map_err(io::Error::other)
    }
}

/// A server on a thread of its own, which ends with the tests.
fn serve(streams: Option<u32>) -> (SocketAddr, Arc<State>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let state = Arc::new(State::default());
    let shared = state.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                socket.set_nodelay(true).unwrap();
                let state = shared.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| state.clone().serve(request));
                    let mut builder = Builder::new(TokioExecutor::new());
                    builder.max_concurrent_streams(streams);
                    let mut serving = pin!(builder.serve_connection(TokioIo::new(socket), service));
                    tokio::select! {
                        _ = serving.as_mut() => return,
                        () = state.goodbye.notified() => {}
                    }
                    serving.as_mut().graceful_shutdown();
                    serving.await.ok();
                });
            }
        });
    });
    (address, state)
}

#[test]
fn answers_are_read() {
    let mut client = Client::connect(serve(None).0);
    client.send(7, "/hello");
    let hello = answer(&client.finish());
    let expected = Answer { status: 200, body_bytes: 6, ..Answer::default() };
    assert_eq!(hello, expected);

    client.send(7, "/json");
    let json = answer(&client.finish());
    assert_eq!((json.status, json.body_bytes, &json.body[..]), (200, 12, &b"{\"uncia\":{}}"[..]));
    assert!(json.head.starts_with(b"HTTP/2 200\r\n") && json.head.ends_with(b"\r\n\r\n"));
    let mut headers = Vec::new();
    http1::header(&json.head, |name, value| headers.push((name.to_owned(), value.to_vec())));
    assert!(headers.contains(&("x-uncia-start".to_owned(), b"cold".to_vec())));
    assert!(headers.contains(&("server".to_owned(), b"test".to_vec())));

    client.send(7, "/bad");
    let bad = answer(&client.finish());
    assert_eq!((bad.status, &bad.body[..]), (502, &b"bad gateway"[..]));

    client.send(7, "/empty");
    assert_eq!(answer(&client.finish()), Answer { status: 204, ..Answer::default() });

    client.send(7, "/trailers");
    let trailers = answer(&client.finish());
    assert_eq!((trailers.status, trailers.body_bytes), (200, 5));
    assert!(!client.session.is_over());
}

#[test]
fn a_thousand_at_once() {
    let mut client = Client::connect(serve(Some(1000)).0);
    client.greet();
    assert_eq!(client.session.capacity(), 1000);
    for key in 0..1000 {
        client.send(key, &format!("/{key}"));
    }
    assert_eq!((client.session.capacity(), client.session.open_streams()), (0, 1000));
    let full = client.session.send(1000, get("/"), Bytes::new());
    assert_eq!(full, Err(SessionError::Full));
    let events = client.finish();
    let done = events.iter().filter_map(|event| match event {
        SessionEvent::Done { key, answer } => Some((*key, answer.body_bytes)),
        _ => None,
    });
    let expected: BTreeSet<_> =
        (0..1000_u32).map(|key| (key, 1 + key.to_string().len() as u64)).collect();
    assert_eq!(done.collect::<BTreeSet<_>>(), expected);
    assert_eq!(events.len(), 2000);
    assert_eq!(client.session.capacity(), 1000);
}

#[test]
fn large_bodies_both_ways() {
    let mut client = Client::connect(serve(None).0);
    let body = Bytes::from(vec![b'b'; 20 << 20]);
    for key in 0..3 {
        client.post(key, "/echo", body.clone());
    }
    client.send(3, "/large");
    client.run_until(|client| {
        assert!(client.session.output().len() < 1 << 20, "output is bounded");
        client.session.open_streams() == 0
    });
    let lengths = client.events.iter().filter_map(|event| match event {
        SessionEvent::Done { key, answer } => Some((*key, answer.body_bytes)),
        SessionEvent::Head { .. } => None,
        SessionEvent::Failed { .. } => panic!("{event:?}"),
    });
    let echo = body.len() as u64;
    assert_eq!(
        lengths.collect::<BTreeSet<_>>(),
        [(0, echo), (1, echo), (2, echo), (3, 32 << 20)].into()
    );
}

#[test]
fn an_answer_may_come_before_the_request_is_all_sent() {
    let mut client = Client::connect(serve(None).0);
    client.post(1, "/early", vec![0; 8 << 20].into());
    let early = answer(&client.finish());
    assert_eq!((early.status, &early.body[..]), (413, &b"too much"[..]));
    client.send(1, "/hello");
    assert_eq!(answer(&client.finish()).status, 200);
}

#[test]
fn a_reset_fails_one_request() {
    let mut client = Client::connect(serve(None).0);
    client.send(1, "/later");
    client.send(2, "/break");
    let events = client.finish();
    let broken = events.iter().find(|event| matches!(event, SessionEvent::Failed { .. }));
    let (error, wrote, answer) = failure(&[broken.unwrap().clone()]);
    assert_eq!(error, SessionError::Reset(Reason::INTERNAL_ERROR));
    assert!(wrote);
    assert_eq!(answer.unwrap().body_bytes, 4);
    let is_done = |event: &SessionEvent| matches!(event, SessionEvent::Done { key: 1, .. });
    assert!(events.iter().any(is_done));
}

#[test]
fn a_server_that_goes_away_finishes_what_it_has_begun() {
    let mut client = Client::connect(serve(None).0);
    client.send(1, "/later");
    client.send(2, "/goodbye");
    client.run_until(|client| client.session.capacity() == 0);
    assert!(client.session.open_streams() > 0);
    let refused = client.session.send(3, get("/hello"), Bytes::new());
    assert!(matches!(refused, Err(SessionError::GoneAway { .. })), "{refused:?}");
    let events = client.finish();
    let done = events.iter().filter(|event| matches!(event, SessionEvent::Done { .. }));
    assert_eq!(done.count(), 2, "{events:?}");
    client.run_until(|client| client.session.is_over());
    assert_eq!(client.events, []);
}

#[test]
fn a_server_s_limit_is_kept() {
    let (address, state) = serve(Some(3));
    let mut client = Client::connect(address);
    client.greet();
    assert_eq!(client.session.capacity(), 3);
    let (mut next, mut done) = (0, 0);
    client.run_until(|client| {
        while next < 30 && client.session.capacity() > 0 {
            client.send(next, "/hello");
            next += 1;
        }
        for event in client.events.drain(..) {
            assert!(!matches!(event, SessionEvent::Failed { .. }), "{event:?}");
            done += usize::from(matches!(event, SessionEvent::Done { .. }));
        }
        done == 30
    });
    assert!(state.most_under_way.load(Ordering::Relaxed) <= 3);
}

#[test]
fn what_exceeds_a_limit_not_yet_known_was_not_processed() {
    let mut client = Client::connect(serve(Some(3)).0);
    for key in 0..8 {
        client.send(key, "/later");
    }
    let events = client.finish();
    let mut refused = 0;
    for event in &events {
        if let SessionEvent::Failed { error, wrote, .. } = event {
            assert_eq!((error, wrote), (&SessionError::Reset(Reason::REFUSED_STREAM), &false));
            refused += 1;
        }
    }
    assert_eq!(refused, 5, "{events:?}");
}

#[test]
fn requests_can_be_given_up() {
    let (address, state) = serve(None);
    let mut client = Client::connect(address);
    for key in 0..50 {
        client.send(key, "/never");
    }
    client.run_until(|_| state.under_way.load(Ordering::Relaxed) == 50);
    for key in 0..50 {
        assert_eq!(client.session.cancel(key), None);
    }
    assert_eq!(client.session.cancel(0), None);
    assert_eq!(client.session.open_streams(), 0);
    // The same keys, at once.
    for key in 0..50 {
        client.send(key, "/hello");
    }
    let events = client.finish();
    assert_eq!(events.len(), 100);
    assert!(!events.iter().any(|event| matches!(event, SessionEvent::Failed { .. })));
    // Given up before anything was written.
    client.send(1, "/never");
    client.session.cancel(1);
    client.post(2, "/echo", vec![1; 1 << 20].into());
    client.write();
    client.session.cancel(2);
    client.send(3, "/hello");
    assert_eq!(answer(&client.finish()).body_bytes, 6);
}

#[test]
fn single_bytes_are_enough() {
    let mut client = Client::reading(serve(None).0, 1);
    for key in 0..20 {
        client.send(key, "/json");
    }
    client.post(20, "/echo", vec![b'{'; 40_000].into());
    let events = client.finish();
    let bytes = events.iter().filter_map(|event| match event {
        SessionEvent::Done { answer, .. } => Some(answer.body.len()),
        _ => None,
    });
    assert_eq!(bytes.sum::<usize>(), 20 * 12 + 40_000);
}

#[test]
fn a_server_of_http_1_is_told() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let (socket, _) = listener.accept().await.unwrap();
            let service =
                service_fn(|_| async { Ok::<_, io::Error>(Response::new(Frames::of(""))) });
            let builder = hyper::server::conn::http1::Builder::new();
            builder.serve_connection(TokioIo::new(socket), service).await.ok();
        });
    });
    let mut client = Client::connect(address);
    client.send(1, "/");
    // This one hangs up; others say `HTTP/1.1 400`.
    assert_eq!(failure(&client.finish()), (SessionError::Silent, true, None));
}
