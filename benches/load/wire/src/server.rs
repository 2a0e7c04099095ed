//! The server that records arrivals: one thread, epoll, nothing between it and the socket.
//!
//! The arrival that counts is the kernel's receive timestamp. On loopback a segment is received within
//! the client's own `write`, so the timestamp says when the client wrote, however late this server is
//! scheduled. That makes generators comparable on a machine whose cores they share with the server.

use std::collections::HashMap;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{Backlog, listen, setsockopt, sockopt};

use crate::connection::{Buffers, Connection, Received};
use crate::log::{Arrival, Log, now_ns};

const EVENTS: usize = 256;

/// A span of time, counted from the first request, in which no answer is written.
pub struct Stall {
    after: Duration,
    length: Duration,
    state: StallState,
}

enum StallState {
    /// Begins then, once the first request has come.
    Ahead(Option<Instant>),
    /// Lasts until then.
    On(Instant),
    Over,
}

impl Stall {
    pub fn new(after: Duration, length: Duration) -> Self {
        Self { after, length, state: StallState::Ahead(None) }
    }

    /// Says that a request has come.
    fn request(&mut self, now: Instant) {
        match self.state {
            StallState::Ahead(None) => self.state = StallState::Ahead(Some(now + self.after)),
            StallState::Ahead(Some(start)) if now >= start => {
                self.state = StallState::On(start + self.length);
            }
            _ => {}
        }
    }

    /// Moves on to `now`. Returns whether the stall has just ended.
    fn advance(&mut self, now: Instant) -> bool {
        if let StallState::Ahead(Some(start)) = self.state
            && now >= start
        {
            self.state = StallState::On(start + self.length);
        }
        if let StallState::On(end) = self.state
            && now >= end
        {
            self.state = StallState::Over;
            return true;
        }
        false
    }

    fn is_on(&self) -> bool {
        matches!(self.state, StallState::On(_))
    }

    /// When it begins or ends next.
    fn next(&self) -> Option<Instant> {
        match self.state {
            StallState::Ahead(start) => start,
            StallState::On(end) => Some(end),
            StallState::Over => None,
        }
    }
}

pub struct Recorder {
    listener: TcpListener,
    signals: SignalFd,
    epoll: Epoll,
    connections: HashMap<RawFd, Connection>,
    buffers: Buffers,
    log: Log,
    stall: Option<Stall>,
    requests: Option<usize>,
    idle: Option<Duration>,
    last_request: Option<Instant>,
}

impl Recorder {
    /// Listens on `port` of 127.0.0.1.
    ///
    /// `requests` and `idle` end the run: after so many requests, or when none has come for so long
    /// since the last.
    pub fn bind(
        port: u16,
        stall: Option<Stall>,
        requests: Option<usize>,
        idle: Option<Duration>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        listener.set_nonblocking(true)?;
        // Accepted sockets inherit it, so that even what comes before `accept` has its time.
        setsockopt(&listener, sockopt::ReceiveTimestampns, &true)?;
        // A burst of new connections must not wait for a second SYN.
        listen(&listener, Backlog::MAXALLOWABLE)?;
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGINT);
        ends.add(Signal::SIGTERM);
        ends.thread_block()?;
        let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        watch(&epoll, &listener)?;
        watch(&epoll, &signals)?;
        Ok(Self {
            listener,
            signals,
            epoll,
            connections: HashMap::new(),
            buffers: Buffers::new(),
            log: Log::new()?,
            stall,
            requests,
            idle,
            last_request: None,
        })
    }

    pub fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}/", self.listener.local_addr()?))
    }

    /// Serves until a signal, the number of requests or idleness ends it.
    pub fn run(mut self) -> io::Result<Log> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        loop {
            let count = match self.epoll.wait(&mut events, self.timeout()) {
                Err(Errno::EINTR) => 0,
                result => result?,
            };
            for event in &events[..count] {
                let fd = RawFd::try_from(event.data()).map_err(io::Error::other)?;
                if fd == self.signals.as_raw_fd() {
                    return Ok(self.log);
                } else if fd == self.listener.as_raw_fd() {
                    self.accept()?;
                } else {
                    self.serve(fd)?;
                }
            }
            let now = Instant::now();
            if self.stall.as_mut().is_some_and(|stall| stall.advance(now)) {
                self.answer_all()?;
            }
            if self.is_done(now) {
                return Ok(self.log);
            }
        }
    }

    fn timeout(&self) -> EpollTimeout {
        let idle = self.idle.zip(self.last_request).map(|(idle, last)| last + idle);
        let stall = self.stall.as_ref().and_then(Stall::next);
        let Some(next) = idle.into_iter().chain(stall).min() else { return EpollTimeout::NONE };
        // Rounded up: waking a millisecond early would spin until it is time.
        let wait = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::MAX)
    }

    fn is_done(&self, now: Instant) -> bool {
        // Answers that are held back are still to be given.
        if self.stall.as_ref().is_some_and(Stall::is_on) {
            return false;
        }
        let enough = self.requests.is_some_and(|limit| self.log.arrivals.len() >= limit);
        let idle = self.idle.zip(self.last_request).is_some_and(|(idle, last)| now >= last + idle);
        enough || idle
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            watch(&self.epoll, &stream)?;
            let connection = Connection::new(self.log.connections, stream);
            self.log.connections += 1;
            self.connections.insert(connection.fd(), connection);
        }
    }

    /// Reads from a connection, or writes on, and answers unless answers are being held back.
    fn serve(&mut self, fd: RawFd) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&fd) else { return Ok(()) };
        match connection.receive(&mut self.buffers) {
            Ok(Received::Bytes { kernel_ns, requests }) => {
                let arrival =
                    Arrival { kernel_ns, read_ns: now_ns()?, connection: connection.number };
                self.note(arrival, requests);
            }
            Ok(Received::Nothing) => {}
            Ok(Received::End) => {
                self.connections.remove(&fd);
                return Ok(());
            }
            Err(message) => {
                eprintln!("wire: connection {}: {message}", connection.number);
                self.log.malformed += 1;
                self.connections.remove(&fd);
                return Ok(());
            }
        }
        if !self.stall.as_ref().is_some_and(Stall::is_on) {
            self.answer(fd)?;
        }
        Ok(())
    }

    fn note(&mut self, arrival: Arrival, requests: usize) {
        self.log.arrivals.extend(std::iter::repeat_n(arrival, requests));
        // Without either the clock is not read again, which keeps the server out of the way.
        if requests > 0 && (self.idle.is_some() || self.stall.is_some()) {
            let now = Instant::now();
            self.last_request = Some(now);
            if let Some(stall) = &mut self.stall {
                stall.request(now);
            }
        }
    }

    /// Writes what is owed on a connection. A socket that does not take it all is waited for.
    fn answer(&mut self, fd: RawFd) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&fd) else { return Ok(()) };
        if !connection.owes() {
            return Ok(());
        }
        // A client that went away without its answer is not the server's business.
        if connection.answer().is_err() || connection.is_over() {
            self.connections.remove(&fd);
            return Ok(());
        }
        let waits = connection.owes();
        if waits != connection.waits {
            connection.waits = waits;
            let mut flags = EpollFlags::EPOLLIN;
            flags.set(EpollFlags::EPOLLOUT, waits);
            self.epoll.modify(&*connection, &mut EpollEvent::new(flags, data(fd)))?;
        }
        Ok(())
    }

    fn answer_all(&mut self) -> io::Result<()> {
        let all: Vec<RawFd> = self.connections.keys().copied().collect();
        all.into_iter().try_for_each(|fd| self.answer(fd))
    }
}

fn watch(epoll: &Epoll, what: impl AsFd) -> io::Result<()> {
    let fd = what.as_fd();
    Ok(epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, data(fd.as_raw_fd())))?)
}

/// What epoll hands back for a descriptor: its number.
fn data(fd: RawFd) -> u64 {
    u64::try_from(fd).expect("an open descriptor is not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_from_the_first_request() {
        let ms = Duration::from_millis;
        let mut stall = Stall::new(ms(30), ms(20));
        let start = Instant::now();
        assert!(!stall.advance(start + ms(1_000)));
        assert_eq!(stall.next(), None);
        stall.request(start);
        stall.request(start + ms(10));
        assert_eq!(stall.next(), Some(start + ms(30)));
        assert!(!stall.advance(start + ms(29)) && !stall.is_on());
        assert!(!stall.advance(start + ms(30)) && stall.is_on());
        assert!(!stall.advance(start + ms(49)) && stall.is_on());
        assert!(stall.advance(start + ms(50)) && !stall.is_on());
        assert!(!stall.advance(start + ms(2_000)));
    }

    #[test]
    fn a_request_begins_the_stall_that_is_due() {
        let mut stall = Stall::new(Duration::from_millis(5), Duration::from_secs(1));
        let start = Instant::now();
        stall.request(start);
        stall.request(start + Duration::from_millis(6));
        assert!(stall.is_on());
    }
}
