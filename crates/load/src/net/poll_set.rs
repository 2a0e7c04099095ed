//! poll(2), for systems without epoll: costs as much as there are sockets, but is everywhere.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::poller::{Event, timespec};

#[derive(Clone, Copy)]
struct Interest {
    token: u64,
    write: bool,
}

/// The sockets of interest.
pub(crate) struct PollSet {
    sockets: HashMap<RawFd, Interest>,
}

impl PollSet {
    pub(crate) fn new() -> Self {
        Self { sockets: HashMap::new() }
    }

    pub(crate) fn register(&mut self, socket: RawFd, token: u64, write: bool) {
        self.sockets.insert(socket, Interest { token, write });
    }

    pub(crate) fn want_write(&mut self, socket: RawFd, write: bool) {
        if let Some(interest) = self.sockets.get_mut(&socket) {
            interest.write = write;
        }
    }

    pub(crate) fn forget(&mut self, socket: RawFd) {
        self.sockets.remove(&socket);
    }

    pub(crate) fn wait(&mut self, events: &mut Vec<Event>, timeout: Duration) -> io::Result<()> {
        let mut tokens = Vec::with_capacity(self.sockets.len());
        let mut polled = Vec::with_capacity(self.sockets.len());
        for (&socket, interest) in &self.sockets {
            // SAFETY: whoever closes a registered socket calls `forget` before, so it is open.
            let socket = unsafe { BorrowedFd::borrow_raw(socket) };
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, interest.write);
            polled.push(PollFd::from_borrowed_fd(socket, flags));
            tokens.push(interest.token);
        }
        match poll(&mut polled, Some(&timespec(timeout))) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for (found, token) in polled.iter().zip(tokens) {
            let flags = found.revents();
            if !flags.is_empty() {
                events.push(Event {
                    token,
                    readable: flags.contains(PollFlags::IN),
                    writable: flags.contains(PollFlags::OUT),
                    hang_up: flags.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
                });
            }
        }
        Ok(())
    }
}
