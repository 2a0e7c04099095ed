//! Ending a run early.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Why a run is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// The signal's name in the C library, such as `SIGINT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// The exit code that shells expect of a process that the signal ended.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// How urgently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// Go on.
    None,
    /// Send nothing more, wait for answers.
    Drain,
    /// End at once.
    Now,
}

const NO_SIGNAL: u8 = 0;
const INTERRUPT: u8 = 1;
const TERMINATE: u8 = 2;

/// The handle with which other threads end a run. The first signal lets requests in flight finish;
/// the second does not.
#[derive(Debug)]
pub struct Stop {
    requests: AtomicU32,
    first: AtomicU8,
    /// Whether a rule has ended the run.
    ruled: AtomicBool,
    wake: UnixStream,
    woken: UnixStream,
}

impl Stop {
    /// Makes a handle of a run that goes on; fails when the process can open no socket pair.
    pub fn new() -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        Ok(Self {
            requests: AtomicU32::new(0),
            first: AtomicU8::new(NO_SIGNAL),
            ruled: AtomicBool::new(false),
            wake,
            woken,
        })
    }

    /// A signal came.
    pub fn signal(&self, signal: Signal) {
        let code = match signal {
            Signal::Interrupt => INTERRUPT,
            Signal::Terminate => TERMINATE,
        };
        // Only the first is kept: it is what the exit code reports.
        let _ = self.first.compare_exchange(NO_SIGNAL, code, Ordering::SeqCst, Ordering::SeqCst);
        self.request(1);
    }

    /// Nothing that still happens could be recorded: end at once.
    pub(crate) fn abort(&self) {
        self.request(2);
    }

    /// A rule of the run's own ends it: requests in flight may finish, and so they may after one
    /// signal more.
    pub(crate) fn rule(&self) {
        self.ruled.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn request(&self, count: u32) {
        self.requests.fetch_add(count, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // A full buffer means that a wake-up is under way already.
        let _ = (&self.wake).write(&[0]);
    }

    pub(crate) fn urgency(&self) -> Urgency {
        match self.requests.load(Ordering::SeqCst) {
            0 if self.ruled.load(Ordering::SeqCst) => Urgency::Drain,
            0 => Urgency::None,
            1 => Urgency::Drain,
            _ => Urgency::Now,
        }
    }

    /// The signal that came first.
    pub fn first_signal(&self) -> Option<Signal> {
        match self.first.load(Ordering::SeqCst) {
            INTERRUPT => Some(Signal::Interrupt),
            TERMINATE => Some(Signal::Terminate),
            _ => None,
        }
    }

    /// Becomes readable when the run is asked to end.
    pub(crate) fn woken(&self) -> &UnixStream {
        &self.woken
    }

    /// Takes the wake-ups that have come.
    pub(crate) fn take_wakes(&self) {
        let mut bytes = [0; 64];
        while matches!((&self.woken).read(&mut bytes), Ok(1..)) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_drains_and_is_no_signal() {
        let stop = Stop::new().unwrap();
        assert_eq!(stop.urgency(), Urgency::None);
        stop.rule();
        assert_eq!((stop.urgency(), stop.first_signal()), (Urgency::Drain, None));
        let mut byte = [0];
        assert_eq!(stop.woken().read(&mut byte).unwrap(), 1);
        stop.signal(Signal::Interrupt);
        assert_eq!(stop.urgency(), Urgency::Drain);
        stop.signal(Signal::Terminate);
        assert_eq!((stop.urgency(), stop.first_signal()), (Urgency::Now, Some(Signal::Interrupt)));
    }
}
