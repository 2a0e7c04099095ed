//! Sending requests on connections that stand.

use std::io;

use super::OpenLoop;
use super::connections::{Phase, Protocol, write_all};
use crate::net::Transport;
use crate::request::Rendered;
use crate::rows::Failure;

impl OpenLoop<'_> {
    /// Sends a request on a connection for one at a time. False: the server had closed it, and
    /// nothing of the request went out.
    pub(super) fn send_http1(&mut self, slot: u32, key: u32) -> bool {
        match self.write_http1(slot, key) {
            Ok(()) => true,
            Err(_) if !self.wrote(slot) => {
                if let Protocol::Http1(http) = &mut self.connections.get(slot).protocol {
                    http.exchange = None;
                }
                self.exchanges[key as usize].connection = None;
                false
            }
            Err(error) => {
                self.write_failed(slot, key, error);
                true
            }
        }
    }

    /// Sends the request that a connection was opened for.
    pub(super) fn send_first_http1(&mut self, slot: u32, key: u32) {
        if let Err(error) = self.write_http1(slot, key) {
            self.write_failed(slot, key, error);
        }
    }

    fn wrote(&mut self, slot: u32) -> bool {
        match &self.connections.get(slot).protocol {
            Protocol::Http1(http) => http.wrote,
            Protocol::Http2(_) => true,
        }
    }

    /// Puts a request on a connection and writes what the socket takes of it.
    fn write_http1(&mut self, slot: u32, key: u32) -> io::Result<()> {
        let exchange = &mut self.exchanges[key as usize];
        let entry = exchange.completion.entry;
        let request = &self.plan.target(&entry).request;
        let answers = self.chains.values(self.plan, exchange.task, entry.stream);
        let moment = self.plan.moment(&entry, self.clock.unix(self.now), answers);
        request.render_http1(&mut self.rendered, &moment);
        exchange.connection = Some(slot);
        let connection = self.connections.get(slot);
        exchange.completion.reused = Some(connection.used);
        let Protocol::Http1(http) = &mut connection.protocol else {
            unreachable!("the caller has looked");
        };
        http.exchange = Some(key);
        http.wrote = false;
        http.unsent.clear();
        http.reader.start(request.is_head());
        if self.plan.stage(entry.stream).is_some_and(|stage| stage.keeps_answer) {
            http.reader.keep_whole();
        }
        let transport = &mut connection.transport;
        let mut written = 0;
        let result = write_request(transport, &self.rendered, &mut written);
        if written > 0 {
            http.wrote = true;
            connection.used = true;
            exchange.completion.request_bytes = Some(self.rendered.body_bytes() as i64);
        }
        let complete = result?;
        if !complete {
            http.unsent.keep(&self.rendered, written);
        }
        let pending = !complete || !transport.flush()?;
        self.poller.want_write(&transport.socket, pending);
        Ok(())
    }

    /// The socket has room again.
    pub(super) fn write_rest(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let http = match &mut connection.protocol {
            Protocol::Http2(_) => return self.write_session(slot),
            Protocol::Http1(http) => http,
        };
        let Some(key) = http.exchange else {
            return;
        };
        let transport = &mut connection.transport;
        let sent = if http.unsent.is_empty() {
            transport.flush()
        } else {
            http.unsent.send(transport).and_then(|all| Ok(transport.flush()? && all))
        };
        match sent {
            Ok(all) => {
                http.wrote = true;
                self.poller.want_write(&transport.socket, !all);
            }
            Err(error) => self.write_failed(slot, key, error),
        }
    }

    /// A server may refuse a request with an answer and close without having read it: the answer
    /// counts, if it is there.
    fn write_failed(&mut self, slot: u32, key: u32, error: io::Error) {
        let token = self.connections.token(slot);
        self.read(slot, true);
        let is_same = self.connections.slot_of(token).is_some()
            && matches!(
                &self.connections.get(slot).protocol,
                Protocol::Http1(http) if http.exchange == Some(key)
            );
        if is_same {
            self.fail_connection(slot, || Failure::Send(super::open::copy(&error)));
        }
    }

    /// Starts requests on a session.
    pub(super) fn send_http2(&mut self, slot: u32, keys: &[u32]) {
        let unix_ns = self.clock.unix(self.now);
        let mut refused = Vec::new();
        for &key in keys {
            let exchange = &mut self.exchanges[key as usize];
            exchange.connection = Some(slot);
            let entry = exchange.completion.entry;
            let request = &self.plan.target(&entry).request;
            let connection = self.connections.get(slot);
            exchange.completion.reused = Some(connection.used);
            let Protocol::Http2(session) = &mut connection.protocol else {
                unreachable!("the caller has looked");
            };
            let answers = self.chains.values(self.plan, exchange.task, entry.stream);
            let moment = self.plan.moment(&entry, unix_ns, answers);
            let (request, body) = request.render_http2(&moment);
            exchange.completion.request_bytes = Some(body.len() as i64);
            match session.send(key, request, body) {
                Ok(()) => {
                    connection.used = true;
                    if self.plan.stage(entry.stream).is_some_and(|stage| stage.keeps_answer) {
                        session.keep_whole(key);
                    }
                }
                Err(error) => refused.push((key, error)),
            }
        }
        for (key, error) in refused {
            self.exchanges[key as usize].completion.request_bytes = None;
            self.finish(key, Some(Failure::Session(error)), None);
        }
        self.write_session(slot);
    }

    /// Writes what a session has to say.
    pub(super) fn write_session(&mut self, slot: u32) {
        let connection = self.connections.get(slot);
        let (Phase::Open, Protocol::Http2(session)) = (connection.phase, &mut connection.protocol)
        else {
            return;
        };
        let transport = &mut connection.transport;
        let sent = loop {
            let output = session.output();
            if output.is_empty() {
                break transport.flush();
            }
            let mut at = 0;
            let all = write_all(transport, output, &mut at);
            session.wrote(at);
            match all {
                Ok(true) => {}
                other => break other,
            }
        };
        match sent {
            Ok(all) => self.poller.want_write(&transport.socket, !all),
            Err(error) => {
                self.fail_connection(slot, || Failure::Send(super::open::copy(&error)));
            }
        }
    }
}

/// Writes from `written` on, which it moves; false when the socket would block.
fn write_request(
    transport: &mut Transport,
    rendered: &Rendered,
    written: &mut usize,
) -> io::Result<bool> {
    while !rendered.rest(*written).is_empty() {
        let rest = rendered.rest(*written);
        let mut at = 0;
        let complete = write_all(transport, rest, &mut at);
        *written += at;
        if !complete? {
            return Ok(false);
        }
    }
    Ok(true)
}
