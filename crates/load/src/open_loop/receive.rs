//! Receiving answers.

use std::io::{self, Read};

use super::connections::Phase;
use super::{OpenLoop, SENDS_BETWEEN_ANSWERS};
use crate::rows::Failure;

/// Full buffers read from one connection before others get their turn.
const READS_IN_A_ROW: usize = 16;

impl OpenLoop<'_> {
    /// Reads what a connection has. `hang_up`: the end of the connection is among it.
    pub(super) fn read(&mut self, slot: u32, hang_up: bool) {
        let token = self.connections.token(slot);
        for _ in 0..READS_IN_A_ROW {
            let connection = self.connections.get(slot);
            let size = match (&connection.socket).read(&mut self.buffer) {
                Ok(0) => return self.ended(slot),
                Ok(size) => size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.receive_failed(slot, error),
            };
            self.now = self.clock.now();
            if connection.phase == Phase::Idle {
                // Nobody asked: whatever it is, it belongs to no request.
                return self.close_idle(slot);
            }
            let fed = match connection.reader.feed(&self.buffer[..size]) {
                Ok(fed) => fed,
                Err(error) => return self.fail(slot, Failure::Response(error)),
            };
            if fed.head_arrived {
                connection.exchange.first_byte = Some(self.now);
            }
            if fed.done {
                connection.exchange.received = Some(self.now);
                let reusable = connection.reader.keep_alive()
                    && connection.is_written()
                    && fed.consumed == size;
                self.answered(slot, reusable);
                if !reusable {
                    return;
                }
            }
            // A short read has emptied the socket, and whatever comes later is a new event.
            if size < self.buffer.len() && !hang_up {
                return;
            }
            if !fed.done {
                self.send_due(SENDS_BETWEEN_ANSWERS);
            }
        }
        self.unread.push(token);
    }

    /// The answer is complete.
    fn answered(&mut self, slot: u32, reusable: bool) {
        self.finish(slot);
        if reusable {
            let connection = self.connections.get(slot);
            let idle = &mut self.idle[connection.endpoint];
            connection.idle_at = idle.len();
            idle.push(slot);
        } else {
            self.close(slot);
        }
    }

    /// The server has closed the connection.
    fn ended(&mut self, slot: u32) {
        self.now = self.clock.now();
        let connection = self.connections.get(slot);
        if connection.phase == Phase::Idle {
            return self.close_idle(slot);
        }
        match connection.reader.end() {
            Ok(()) => {
                connection.exchange.received = Some(self.now);
                self.answered(slot, false);
            }
            Err(error) => self.fail(slot, Failure::Response(error)),
        }
    }

    fn receive_failed(&mut self, slot: u32, error: io::Error) {
        self.now = self.clock.now();
        if self.connections.get(slot).phase == Phase::Idle {
            return self.close_idle(slot);
        }
        self.fail(slot, Failure::Receive(error));
    }
}
