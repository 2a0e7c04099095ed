//! Waiting for sockets with a deadline in nanoseconds.

use std::io;
use std::os::fd::{AsFd, RawFd};
use std::time::Duration;

use super::poll_set::PollSet;

/// Something happened to a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// What the socket was registered with.
    pub token: u64,
    pub readable: bool,
    pub writable: bool,
    /// The peer will send no more, or the socket has an error: reading will tell.
    pub hang_up: bool,
}

/// Events taken at once. More wait for the next call.
const MAX_EVENTS: usize = 256;

/// Readiness of many sockets: epoll with nanosecond timeouts where there is one (Linux >= 5.11),
/// poll elsewhere.
///
/// Readiness is to be used up: a reader goes on until it would block, or until it got less than it
/// asked for.
pub(crate) enum Poller {
    #[cfg(target_os = "linux")]
    Epoll(epoll::Epoll),
    Poll(PollSet),
}

impl Poller {
    /// The best that the system has.
    pub(crate) fn new() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(epoll) = epoll::Epoll::new()? {
            return Ok(Self::Epoll(epoll));
        }
        Ok(Self::Poll(PollSet::new()))
    }

    /// What every system has.
    #[cfg(test)]
    pub(crate) fn portable() -> Self {
        Self::Poll(PollSet::new())
    }

    /// Registers a socket; the token must be unlike those of others. `connecting`: it is not
    /// connected yet, and becoming so is awaited.
    pub(crate) fn register(
        &mut self,
        socket: &impl AsFd,
        token: u64,
        connecting: bool,
    ) -> io::Result<()> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Epoll(epoll) => epoll.register(socket.as_fd(), token),
            Self::Poll(set) => {
                set.register(raw(socket), token, connecting);
                Ok(())
            }
        }
    }

    /// Whether it is of interest that the socket can be written to.
    pub(crate) fn want_write(&mut self, socket: &impl AsFd, wanted: bool) {
        match self {
            // An edge comes when a full socket has room again, asked for or not.
            #[cfg(target_os = "linux")]
            Self::Epoll(_) => {}
            Self::Poll(set) => set.want_write(raw(socket), wanted),
        }
    }

    /// To be called before a socket is closed.
    pub(crate) fn forget(&mut self, socket: &impl AsFd) {
        match self {
            // The kernel forgets a closed socket by itself.
            #[cfg(target_os = "linux")]
            Self::Epoll(_) => {}
            Self::Poll(set) => set.forget(raw(socket)),
        }
    }

    /// Waits no longer than `timeout` and puts what happened into `events`.
    pub(crate) fn wait(&mut self, events: &mut Vec<Event>, timeout: Duration) -> io::Result<()> {
        events.clear();
        match self {
            #[cfg(target_os = "linux")]
            Self::Epoll(epoll) => epoll.wait(events, timeout),
            Self::Poll(set) => set.wait(events, timeout),
        }
    }
}

fn raw(socket: &impl AsFd) -> RawFd {
    use std::os::fd::AsRawFd;
    socket.as_fd().as_raw_fd()
}

/// A duration as the kernel takes it.
pub(super) fn timespec(timeout: Duration) -> rustix::time::Timespec {
    rustix::time::Timespec {
        // Beyond what the type holds it makes no difference.
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    }
}

#[cfg(target_os = "linux")]
mod epoll {
    use std::io;
    use std::os::fd::{BorrowedFd, OwnedFd};
    use std::time::Duration;

    use rustix::event::epoll;
    use rustix::io::Errno;

    use super::{Event, MAX_EVENTS, timespec};

    pub(crate) struct Epoll {
        epoll: OwnedFd,
        ready: Vec<epoll::Event>,
    }

    impl Epoll {
        /// None on a kernel whose epoll only waits for whole milliseconds.
        pub(crate) fn new() -> io::Result<Option<Self>> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let mut one = Self { epoll, ready: Vec::with_capacity(1) };
            match one.wait(&mut Vec::new(), Duration::ZERO) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => {
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
            one.ready.reserve_exact(MAX_EVENTS);
            Ok(Some(one))
        }

        pub(crate) fn register(&self, socket: BorrowedFd<'_>, token: u64) -> io::Result<()> {
            // Edge-triggered, for everything, once: no further system call per request.
            let interest = epoll::EventFlags::IN
                | epoll::EventFlags::OUT
                | epoll::EventFlags::RDHUP
                | epoll::EventFlags::ET;
            epoll::add(&self.epoll, socket, epoll::EventData::new_u64(token), interest)?;
            Ok(())
        }

        pub(crate) fn wait(
            &mut self,
            events: &mut Vec<Event>,
            timeout: Duration,
        ) -> io::Result<()> {
            self.ready.clear();
            let spare = rustix::buffer::spare_capacity(&mut self.ready);
            match epoll::wait(&self.epoll, spare, Some(&timespec(timeout))) {
                Ok(_) => {}
                Err(Errno::INTR) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            let hang_up =
                epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
            events.extend(self.ready.iter().map(|event| {
                let flags = event.flags;
                Event {
                    token: event.data.u64(),
                    readable: flags.contains(epoll::EventFlags::IN),
                    writable: flags.contains(epoll::EventFlags::OUT),
                    hang_up: flags.intersects(hang_up),
                }
            }));
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn pollers() -> Vec<Poller> {
        vec![Poller::new().unwrap(), Poller::portable()]
    }

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn tells_what_happens_to_a_socket() {
        for mut poller in pollers() {
            let (mut here, mut there) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            poller.register(&here, 7, true).unwrap();
            let mut events = Vec::new();
            poller.wait(&mut events, SOON).unwrap();
            assert!(matches!(
                events[..],
                [Event { token: 7, writable: true, readable: false, .. }]
            ));
            poller.want_write(&here, false);
            poller.wait(&mut events, Duration::ZERO).unwrap();
            assert_eq!(events, []);
            there.write_all(b"x").unwrap();
            poller.wait(&mut events, SOON).unwrap();
            assert!(matches!(events[..], [Event { token: 7, readable: true, .. }]));
            assert_eq!(here.read(&mut [0; 8]).unwrap(), 1);
            drop(there);
            poller.wait(&mut events, SOON).unwrap();
            assert!(events[0].hang_up || events[0].readable);
            poller.forget(&here);
            drop(here);
            poller.wait(&mut events, Duration::ZERO).unwrap();
            assert_eq!(events, []);
        }
    }

    #[test]
    fn a_full_socket_that_has_room_again_is_writable() {
        for mut poller in pollers() {
            let (here, mut there) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            poller.register(&here, 1, false).unwrap();
            let mut events = Vec::new();
            while (&here).write(&[0; 4096]).is_ok() {}
            poller.wait(&mut events, Duration::ZERO).unwrap();
            poller.want_write(&here, true);
            poller.wait(&mut events, Duration::ZERO).unwrap();
            assert_eq!(events, []);
            there.set_nonblocking(true).unwrap();
            while matches!(there.read(&mut [0; 4096]), Ok(1..)) {}
            poller.wait(&mut events, SOON).unwrap();
            assert!(matches!(events[..], [Event { token: 1, writable: true, .. }]));
        }
    }

    #[test]
    fn waits_no_longer_than_told() {
        for mut poller in pollers() {
            let start = std::time::Instant::now();
            poller.wait(&mut Vec::new(), Duration::from_millis(20)).unwrap();
            assert!(start.elapsed() >= Duration::from_millis(20));
            assert!(start.elapsed() < SOON);
        }
    }
}
