//! Receiving answers.

use std::io;

use super::connections::Protocol;
use super::{OpenLoop, SENDS_BETWEEN_ANSWERS};
use crate::http2::{SessionError, SessionEvent};
use crate::rows::Failure;

/// Full buffers read from one connection before others get their turn.
const READS_IN_A_ROW: usize = 16;

/// What became of a connection by what it brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// An answer, or a part of one that leaves the connection as it is.
    Open,
    /// In the middle of an answer.
    Within,
    Closed,
}

impl OpenLoop<'_> {
    /// Reads what a connection has. `hang_up`: the end of the connection is among it.
    pub(super) fn read(&mut self, slot: u32, hang_up: bool) {
        let token = self.connections.token(slot);
        for _ in 0..READS_IN_A_ROW {
            let connection = self.connections.get(slot);
            let size = match connection.transport.read(&mut self.buffer) {
                Ok(0) => return self.closed_by_server(slot),
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.receive_failed(slot, &error),
            };
            let is_last = connection.transport.short_read_is_last() && !hang_up;
            let is_session = matches!(connection.protocol, Protocol::Http2(_));
            self.now = self.clock.now();
            let after =
                if is_session { self.feed_http2(slot, size) } else { self.feed_http1(slot, size) };
            match after {
                After::Closed => return,
                _ if is_last && size < self.buffer.len() => return,
                After::Within => {
                    self.send_due(SENDS_BETWEEN_ANSWERS);
                    if self.connections.slot_of(token).is_none() {
                        return;
                    }
                }
                After::Open => {}
            }
        }
        self.unread.push(token);
    }

    fn feed_http1(&mut self, slot: u32, size: usize) -> After {
        let now = self.now;
        let connection = self.connections.get(slot);
        let Protocol::Http1(http) = &mut connection.protocol else {
            unreachable!("the caller has looked");
        };
        let Some(key) = http.exchange else {
            // Nobody asked: whatever it is, it belongs to no request.
            self.close(slot);
            return After::Closed;
        };
        let fed = match http.reader.feed(&self.buffer[..size]) {
            Ok(fed) => fed,
            Err(error) => {
                self.fail_connection(slot, || Failure::Response(error.clone()));
                return After::Closed;
            }
        };
        let completion = &mut self.exchanges[key as usize].completion;
        if fed.head_arrived {
            completion.first_byte = Some(now);
            if let Some(deadlines) = &mut self.first_byte_deadlines {
                deadlines.drop(key);
            }
        }
        if !fed.done {
            return After::Within;
        }
        completion.received = Some(now);
        let reusable = http.reader.keep_alive() && http.unsent.is_empty() && fed.consumed == size;
        self.answered_http1(slot, key, reusable)
    }

    /// The answer is complete.
    fn answered_http1(&mut self, slot: u32, key: u32, reusable: bool) -> After {
        self.finish_http1(slot, key, None);
        let keeps = self.keeps_connections();
        if let Protocol::Http1(http) = &mut self.connections.get(slot).protocol {
            http.exchange = None;
        }
        if reusable && keeps {
            self.rest(slot);
            return After::Open;
        }
        self.close(slot);
        After::Closed
    }

    fn feed_http2(&mut self, slot: u32, size: usize) -> After {
        let mut events = std::mem::take(&mut self.events);
        let connection = self.connections.get(slot);
        let Protocol::Http2(session) = &mut connection.protocol else {
            unreachable!("the caller has looked");
        };
        let fed = session.receive(&self.buffer[..size], &mut events);
        self.heed_session(&mut events);
        self.events = events;
        self.after_session(slot, fed.err())
    }

    fn heed_session(&mut self, events: &mut Vec<SessionEvent>) {
        for event in events.drain(..) {
            match event {
                SessionEvent::Head { key } => {
                    self.exchanges[key as usize].completion.first_byte = Some(self.now);
                    if let Some(deadlines) = &mut self.first_byte_deadlines {
                        deadlines.drop(key);
                    }
                }
                SessionEvent::Done { key, answer } => {
                    self.exchanges[key as usize].completion.received = Some(self.now);
                    self.finish(key, None, Some(answer));
                }
                SessionEvent::Failed { key, error, answer, .. } => {
                    self.finish(key, Some(Failure::Session(error)), answer);
                }
            }
        }
    }

    /// Whether a session goes on.
    fn after_session(&mut self, slot: u32, error: Option<SessionError>) -> After {
        if let Some(error) = error {
            self.fail_connection(slot, || Failure::Session(error.clone()));
            return After::Closed;
        }
        let token = self.connections.token(slot);
        self.write_session(slot);
        if self.connections.slot_of(token).is_none() {
            return After::Closed;
        }
        let keeps = self.keeps_connections();
        let connection = self.connections.get(slot);
        let used = connection.used;
        let free = connection.is_free();
        let Protocol::Http2(session) = &mut connection.protocol else {
            unreachable!("the caller has looked");
        };
        if free && (session.capacity() == 0 || (used && !keeps)) {
            self.close(slot);
            return After::Closed;
        }
        After::Open
    }

    /// The server has closed the connection.
    fn closed_by_server(&mut self, slot: u32) {
        self.now = self.clock.now();
        let now = self.now;
        let connection = self.connections.get(slot);
        let http = match &mut connection.protocol {
            Protocol::Http1(http) => http,
            Protocol::Http2(session) => {
                let mut events = std::mem::take(&mut self.events);
                session.end(&mut events);
                self.heed_session(&mut events);
                self.events = events;
                return self.fail_connection(slot, || Failure::Session(SessionError::Closed));
            }
        };
        let Some(key) = http.exchange else {
            return self.close(slot);
        };
        match http.reader.end() {
            Ok(()) => {
                self.exchanges[key as usize].completion.received = Some(now);
                self.answered_http1(slot, key, false);
            }
            Err(error) => self.fail_connection(slot, || Failure::Response(error.clone())),
        }
    }

    fn receive_failed(&mut self, slot: u32, error: &io::Error) {
        self.now = self.clock.now();
        if self.connections.get(slot).is_free() {
            return self.close(slot);
        }
        self.fail_connection(slot, || Failure::Receive(super::open::copy(error)));
    }
}
