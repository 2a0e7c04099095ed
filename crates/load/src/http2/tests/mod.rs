mod connection;
mod frames;
mod garbage;
mod measure;
mod server;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;

use super::{Answer, Limits, Session, SessionError, SessionEvent};

/// Nothing here takes as long; what does, hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://localhost{path}")).body(()).unwrap()
}

fn post(path: &str) -> Request<()> {
    Request::post(format!("http://localhost{path}")).body(()).unwrap()
}

/// A session with a socket, by hand.
struct Client {
    session: Session,
    socket: TcpStream,
    events: Vec<SessionEvent>,
    buffer: Vec<u8>,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        Self::reading(address, 64 << 10)
    }

    /// A client that reads at most so many bytes at a time.
    fn reading(address: SocketAddr, bytes: usize) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.set_nodelay(true).unwrap();
        Self {
            session: Session::new(Limits::default()),
            socket,
            events: Vec::new(),
            buffer: vec![0; bytes],
        }
    }

    fn send(&mut self, key: u32, path: &str) {
        self.session.send(key, get(path), Bytes::new()).unwrap();
    }

    fn post(&mut self, key: u32, path: &str, body: Bytes) {
        self.session.send(key, post(path), body).unwrap();
    }

    fn write(&mut self) -> bool {
        let mut progress = false;
        loop {
            let output = self.session.output();
            if output.is_empty() {
                return progress;
            }
            match self.socket.write(output) {
                Ok(bytes) => self.session.wrote(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return progress,
                // The peer is gone; reading will say how.
                Err(_) => {
                    let bytes = output.len();
                    self.session.wrote(bytes);
                }
            }
            progress = true;
        }
    }

    fn read(&mut self) -> bool {
        match self.socket.read(&mut self.buffer) {
            Ok(0) => self.session.end(&mut self.events),
            Ok(bytes) => drop(self.session.receive(&self.buffer[..bytes], &mut self.events)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => self.session.end(&mut self.events),
        }
        true
    }

    fn run_until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            let wrote = self.write();
            if !self.read() && !wrote {
                assert!(began.elapsed() < PATIENCE, "hangs after {:?}", self.events);
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        self.write();
    }

    /// Runs until no request is under way; returns what has happened.
    fn finish(&mut self) -> Vec<SessionEvent> {
        self.run_until(|client| client.session.open_streams() == 0);
        std::mem::take(&mut self.events)
    }

    /// Runs until the peer's SETTINGS have come.
    fn greet(&mut self) {
        let before = self.session.capacity();
        self.run_until(|client| client.session.capacity() != before);
    }
}

/// The answer to the only request.
fn answer(events: &[SessionEvent]) -> Answer {
    match events {
        [SessionEvent::Head { key: head }, SessionEvent::Done { key, answer }] if head == key => {
            answer.clone()
        }
        other => panic!("{other:?}"),
    }
}

/// The error of the only request, whether it may have been processed, and its answer so far.
fn failure(events: &[SessionEvent]) -> (SessionError, bool, Option<Answer>) {
    match events.last() {
        Some(SessionEvent::Failed { error, wrote, answer, .. }) => {
            (error.clone(), *wrote, answer.clone())
        }
        other => panic!("{other:?}"),
    }
}
