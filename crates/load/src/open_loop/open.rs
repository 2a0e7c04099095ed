//! Opening connections.

use std::io;

use socket2::Socket;

use super::OpenLoop;
use super::connections::{Connection, Http1, Phase, Protocol};
use crate::config::HttpVersion;
use crate::http2::{Limits, Session};
use crate::net::Transport;
use crate::net::socket::{self, Connecting};
use crate::net::tls::{self, Tls};
use crate::rows::Failure;

/// A socket, the index of its address, and whether the connection is yet to be established.
type Attempt = (Socket, usize, bool);

impl OpenLoop<'_> {
    /// Opens a connection, for a request or to have it.
    pub(super) fn open_for(&mut self, endpoint: usize, key: Option<u32>) {
        if self.plan.max_connections.is_some_and(|limit| self.connections.open() >= limit) {
            self.make_room();
        }
        let preferred = self.stations[endpoint].preferred;
        let (socket, address, in_progress) = match self.connect(endpoint, preferred) {
            Ok(attempt) => attempt,
            Err(error) => return self.not_opened(key, error),
        };
        let protocol = if self.expects_http2(endpoint) {
            Protocol::Http2(Box::new(Session::new(Limits::default())))
        } else {
            Protocol::Http1(Box::new(Http1::new()))
        };
        let is_session = matches!(protocol, Protocol::Http2(_));
        let slot = self.connections.insert(Connection {
            transport: Transport::plain(socket),
            endpoint,
            phase: Phase::Connecting { address },
            protocol,
            waiting: key.into_iter().collect(),
            used: false,
            idle_at: None,
        });
        if is_session {
            self.stations[endpoint].sessions.push(slot);
        }
        let mut since = self.now;
        if let Some(key) = key {
            let exchange = &mut self.exchanges[key as usize];
            exchange.connection = Some(slot);
            since = exchange.completion.sent;
        }
        self.connect_deadlines.set(slot, since);
        self.watch(slot, in_progress);
    }

    fn not_opened(&mut self, key: Option<u32>, error: io::Error) {
        match key {
            Some(key) => self.finish(key, Some(Failure::Connect(error)), None),
            None => self.pool_failure = Some(error.to_string()),
        }
    }

    /// Begins to connect to an address of the endpoint, from the one with index `first` on.
    fn connect(&mut self, endpoint: usize, first: usize) -> io::Result<Attempt> {
        let addresses = &self.plan.endpoints[endpoint].addresses;
        let mut last_error = io::Error::other("the host has no address");
        let mut index = first;
        while index < addresses.len() {
            match socket::connect(&addresses[index]) {
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
        let socket = &connection.transport.socket;
        if let Err(error) = self.poller.register(socket, token, in_progress) {
            self.fail_opening(slot, &error, Failure::Connect);
        } else if !in_progress {
            self.secure(slot);
        }
    }

    /// The outcome of connecting is known.
    pub(super) fn connected(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let error = match connection.transport.socket.take_error() {
            Ok(None) => return self.secure(slot),
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
                self.poller.forget(&connection.transport.socket);
                connection.transport = Transport::plain(socket);
                connection.phase = Phase::Connecting { address };
                self.watch(slot, in_progress);
            }
            Err(later) => {
                let last = address + 1 == self.plan.endpoints[endpoint].addresses.len();
                self.fail_opening(slot, if last { &error } else { &later }, Failure::Connect);
            }
        }
    }

    /// TCP stands; TLS comes next where it is spoken.
    fn secure(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let Phase::Connecting { address } = connection.phase else {
            return;
        };
        let Some((config, server)) = &self.plan.endpoints[connection.endpoint].tls else {
            return self.established(slot, address);
        };
        match Tls::new(config, server) {
            Ok(tls) => {
                connection.transport.tls = Some(Box::new(tls));
                connection.phase = Phase::Handshaking { address };
                self.shake_hands(slot);
            }
            Err(error) => {
                let error = io::Error::new(io::ErrorKind::InvalidData, error);
                self.fail_opening(slot, &error, Failure::Tls);
            }
        }
    }

    /// Goes on with the handshake of TLS.
    pub(super) fn shake_hands(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let Transport { socket, tls } = &mut connection.transport;
        let (Phase::Handshaking { address }, Some(tls)) = (connection.phase, tls) else {
            return;
        };
        match tls.handshake(socket) {
            Ok(true) => {
                let agreed = tls.protocol() == Some(tls::HTTP2);
                self.agree(slot, agreed, address);
            }
            Ok(false) => self.poller.want_write(socket, tls.wants_write()),
            Err(error) => self.fail_opening(slot, &error, Failure::Tls),
        }
    }

    /// ALPN has said what the server speaks.
    fn agree(&mut self, slot: u32, http2: bool, address: usize) {
        let connection = self.connections.get(slot);
        let endpoint = connection.endpoint;
        let version = self.plan.endpoints[endpoint].version;
        let is_session = matches!(connection.protocol, Protocol::Http2(_));
        if http2 && !is_session {
            connection.protocol = Protocol::Http2(Box::new(Session::new(Limits::default())));
            self.stations[endpoint].sessions.push(slot);
        }
        self.stations[endpoint].speaks_http2 |= http2;
        if !http2 && (is_session || version == HttpVersion::Http2) {
            let error = io::Error::other("the server does not speak HTTP/2");
            return self.fail_opening(slot, &error, Failure::Tls);
        }
        self.established(slot, address);
    }

    /// The connection stands: send what waits for it.
    fn established(&mut self, slot: u32, address: usize) {
        self.now = self.clock.now();
        self.connect_deadlines.drop(slot);
        let now = self.now;
        let connection = self.connections.get(slot);
        connection.phase = Phase::Open;
        self.stations[connection.endpoint].preferred = address;
        let waiting = std::mem::take(&mut connection.waiting);
        for key in &waiting {
            self.exchanges[*key as usize].completion.connected = Some(now);
        }
        match (&connection.protocol, waiting.as_slice()) {
            // The preface goes out even when there is nothing to ask yet.
            (Protocol::Http2(_), keys) => self.send_http2(slot, keys),
            (Protocol::Http1(_), [key]) => self.send_first_http1(slot, *key),
            (Protocol::Http1(_), _) => self.rest(slot),
        }
    }

    /// The connection can't be had; nor can the requests that wait for it be sent.
    fn fail_opening(&mut self, slot: u32, error: &io::Error, failure: fn(io::Error) -> Failure) {
        self.now = self.clock.now();
        self.pool_failure = Some(failure(copy(error)).to_string());
        self.fail_connection(slot, || failure(copy(error)));
    }
}

/// The same error once more: several requests may have waited for one connection.
pub(super) fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
