//! Sending requests: on a connection that is idle, else on a new one.

use std::io::{self, Write};
use std::sync::atomic::Ordering;

use super::OpenLoop;
use super::connections::{Connection, Phase};
use crate::http1::ResponseReader;
use crate::net::socket::{self, Connecting};
use crate::plan::Entry;
use crate::rows::{Completion, Failure};

impl OpenLoop<'_> {
    /// Whether the number of connections allows a request. Only a limit that was asked for holds
    /// requests back; they wait in the schedule, and their rows show it.
    pub(super) fn may_send(&self) -> bool {
        let Some(limit) = self.plan.max_connections else {
            return true;
        };
        // An idle connection to another host can make room.
        self.connections.open() < limit || self.idle.iter().any(|idle| !idle.is_empty())
    }

    /// Sends the request that is due since `scheduled`.
    pub(super) fn send(&mut self, scheduled: i64, entry: Entry) {
        let endpoint = self.plan.target(&entry).endpoint;
        self.sent += 1;
        self.in_flight += 1;
        self.counters.sent.store(self.sent, Ordering::Relaxed);
        let sent = self.clock.now();
        let mut exchange = Completion::new(entry, scheduled, sent);
        while let Some(slot) = self.idle[endpoint].pop() {
            exchange.reused = Some(true);
            self.begin(slot, exchange);
            match self.write_on(slot) {
                Ok(()) => {
                    self.total_deadlines.set(slot, sent);
                    return;
                }
                // The server had closed it, and nothing of the request went out: no attempt was
                // made as yet.
                Err(_) if self.connections.get(slot).written == 0 => {
                    self.connections.get(slot).phase = Phase::Idle;
                    self.close(slot);
                    exchange = Completion::new(entry, scheduled, sent);
                }
                Err(error) => {
                    self.total_deadlines.set(slot, sent);
                    self.write_failed(slot, error);
                    return;
                }
            }
        }
        self.open(endpoint, exchange);
    }

    /// Puts a request on a connection.
    fn begin(&mut self, slot: u32, exchange: Completion) {
        let target = self.plan.target(&exchange.entry);
        let connection = self.connections.get(slot);
        connection.reader.start(target.request.is_head());
        connection.exchange = exchange;
        connection.phase = Phase::Exchange;
        connection.written = 0;
        // Known when the head is rendered.
        connection.length = usize::MAX;
    }

    /// Opens a connection for a request.
    fn open(&mut self, endpoint: usize, exchange: Completion) {
        if self.plan.max_connections.is_some_and(|limit| self.connections.open() >= limit) {
            self.make_room();
        }
        let preferred = self.preferred[endpoint];
        let (socket, address, in_progress) = match self.connect(endpoint, preferred) {
            Ok(found) => found,
            Err(error) => {
                let mut completion = exchange;
                completion.failure = Some(Failure::Connect(error));
                self.outbox.push(completion, &[], &[], self.now);
                self.count_ended();
                return;
            }
        };
        let sent = exchange.sent;
        let slot = self.connections.insert(Connection {
            socket,
            endpoint,
            phase: Phase::Connecting { address },
            exchange,
            written: 0,
            length: usize::MAX,
            reader: ResponseReader::new(),
            idle_at: 0,
        });
        self.connect_deadlines.set(slot, sent);
        self.total_deadlines.set(slot, sent);
        self.watch(slot, in_progress);
    }

    /// Closes a connection of any endpoint that is idle, if there is one.
    fn make_room(&mut self) -> bool {
        let Some(slot) = self.idle.iter_mut().find_map(Vec::pop) else {
            return false;
        };
        self.close(slot);
        true
    }

    /// Begins to connect to an address of the endpoint, from the one with index `first` on: the
    /// socket, the address's index, and whether the connection is yet to be established.
    fn connect(
        &mut self,
        endpoint: usize,
        first: usize,
    ) -> io::Result<(socket2::Socket, usize, bool)> {
        let addresses = &self.plan.endpoints[endpoint].addresses;
        let mut last_error = io::Error::other("the host has no address");
        let mut index = first;
        while index < addresses.len() {
            match socket::connect(addresses[index]) {
                Ok(Connecting::Connected(socket)) => return Ok((socket, index, false)),
                Ok(Connecting::InProgress(socket)) => return Ok((socket, index, true)),
                // Idle connections of other endpoints are worth less than this request.
                Err(error) if socket::is_out_of_descriptors(&error) => {
                    if !self.make_room() {
                        return Err(error);
                    }
                }
                Err(error) => {
                    last_error = error;
                    index += 1;
                }
            }
        }
        Err(last_error)
    }

    /// Has the poller watch a new socket.
    fn watch(&mut self, slot: u32, in_progress: bool) {
        let token = self.connections.token(slot);
        let connection = self.connections.get(slot);
        if let Err(error) = self.poller.register(&connection.socket, token, in_progress) {
            self.fail(slot, Failure::Connect(error));
        } else if !in_progress {
            self.established(slot);
        }
    }

    /// The outcome of connecting is known.
    pub(super) fn connected(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let error = match connection.socket.take_error() {
            Ok(None) => return self.established(slot),
            Ok(Some(error)) | Err(error) => error,
        };
        let (endpoint, phase) = (connection.endpoint, connection.phase);
        let Phase::Connecting { address } = phase else {
            return;
        };
        // The next address of the host may answer; its time counts from the same start.
        match self.connect(endpoint, address + 1) {
            Ok((socket, address, in_progress)) => {
                let connection = self.connections.get(slot);
                self.poller.forget(&connection.socket);
                connection.socket = socket;
                connection.phase = Phase::Connecting { address };
                self.watch(slot, in_progress);
            }
            Err(later) => {
                let last = address + 1 == self.plan.endpoints[endpoint].addresses.len();
                self.fail(slot, Failure::Connect(if last { error } else { later }));
            }
        }
    }

    /// The connection stands: send the request that it was opened for.
    fn established(&mut self, slot: u32) {
        self.now = self.clock.now();
        self.connect_deadlines.drop(slot);
        let connection = self.connections.get(slot);
        if let Phase::Connecting { address } = connection.phase {
            self.preferred[connection.endpoint] = address;
        }
        connection.exchange.connected = Some(self.now);
        connection.exchange.reused = Some(false);
        let entry = connection.exchange.entry;
        let exchange = std::mem::replace(&mut connection.exchange, Completion::new(entry, 0, 0));
        self.begin(slot, exchange);
        self.write(slot);
    }

    /// Goes on writing the request.
    pub(super) fn write(&mut self, slot: u32) {
        if let Err(error) = self.write_on(slot) {
            self.write_failed(slot, error);
        }
    }

    fn write_on(&mut self, slot: u32) -> io::Result<()> {
        let connection = self.connections.get(slot);
        let entry = connection.exchange.entry;
        let moment = self.plan.moment(&entry, self.unix_offset + connection.exchange.sent);
        self.plan.target(&entry).request.render_http1(&mut self.rendered, &moment);
        connection.length = self.rendered.total_bytes();
        while !connection.is_written() {
            let rest = self.rendered.rest(connection.written);
            match (&connection.socket).write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(size) => connection.written += size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.poller.want_write(&connection.socket, true);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        self.poller.want_write(&connection.socket, false);
        Ok(())
    }

    /// A server may refuse a request with an answer and close without having read it: the answer
    /// counts, if it is there.
    fn write_failed(&mut self, slot: u32, error: io::Error) {
        let token = self.connections.token(slot);
        let number = self.connections.get(slot).exchange.entry;
        self.read(slot, true);
        let is_same = self.connections.slot_of(token).is_some() && {
            let connection = self.connections.get(slot);
            connection.phase == Phase::Exchange && connection.exchange.entry == number
        };
        if is_same {
            self.fail(slot, Failure::Send(error));
        }
    }
}
