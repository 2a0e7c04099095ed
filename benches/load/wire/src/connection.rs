//! One client's connection.

use std::io::{self, IoSliceMut, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use nix::sys::time::TimeSpec;

use crate::framing::Framing;
use crate::log::nanoseconds;

const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello";

pub struct Connection {
    pub number: u64,
    stream: TcpStream,
    framing: Framing,
    /// Answers that are not yet written at all.
    owed: usize,
    /// The rest of answers that the socket did not take at once.
    unwritten: Vec<u8>,
    /// Whether epoll tells when the socket takes more.
    pub waits: bool,
    /// Nothing more is to be read; closed once everything is written.
    last: bool,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What came of reading a socket.
pub enum Received {
    Bytes {
        /// When the kernel received the last segment among the bytes.
        kernel_ns: Option<i64>,
        /// Requests that they completed.
        requests: usize,
    },
    Nothing,
    End,
}

/// Buffers that all connections share; there is one thread.
pub struct Buffers {
    bytes: Vec<u8>,
    control: Vec<u8>,
}

impl Buffers {
    pub fn new() -> Self {
        Self { bytes: vec![0; 64 * 1024], control: cmsg_space!(TimeSpec) }
    }
}

impl Connection {
    /// A connection of a socket that does not block and has SO_TIMESTAMPNS.
    pub fn new(number: u64, stream: TcpStream) -> Self {
        Self {
            number,
            stream,
            framing: Framing::default(),
            owed: 0,
            unwritten: Vec::new(),
            waits: false,
            last: false,
        }
    }

    pub fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads what is there, once.
    ///
    /// The timestamp is that of the last segment read. Where a client waits for its answer before it
    /// sends more, as all the generators here do, that is the segment which completed the request.
    pub fn receive(&mut self, buffers: &mut Buffers) -> Result<Received, String> {
        let mut slices = [IoSliceMut::new(&mut buffers.bytes)];
        let control = Some(buffers.control.as_mut_slice());
        let fd = self.fd();
        let (count, kernel_ns) =
            match recvmsg::<()>(fd, &mut slices, control, MsgFlags::MSG_DONTWAIT) {
                Ok(message) => {
                    let mut stamp = None;
                    for part in message.cmsgs().into_iter().flatten() {
                        if let ControlMessageOwned::ScmTimestampns(time) = part {
                            stamp = Some(nanoseconds(time));
                        }
                    }
                    (message.bytes, stamp)
                }
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Received::Nothing),
                // A client that resets its connections at the end is done with them, no more.
                Err(_) => return Ok(Received::End),
            };
        if count == 0 {
            return Ok(Received::End);
        }
        if self.last {
            return Ok(Received::Nothing);
        }
        let completed = self.framing.feed(&buffers.bytes[..count])?;
        self.owed += completed.requests;
        self.last = completed.last;
        Ok(Received::Bytes { kernel_ns, requests: completed.requests })
    }

    /// Whether there is anything to write.
    pub fn owes(&self) -> bool {
        self.owed > 0 || !self.unwritten.is_empty()
    }

    /// Writes what is owed, as far as the socket takes it.
    pub fn answer(&mut self) -> io::Result<()> {
        if self.unwritten.is_empty() && self.owed == 1 {
            self.owed = 0;
            let written = self.write(ANSWER)?;
            self.unwritten.extend_from_slice(&ANSWER[written..]);
            return Ok(());
        }
        for _ in 0..std::mem::take(&mut self.owed) {
            self.unwritten.extend_from_slice(ANSWER);
        }
        let bytes = std::mem::take(&mut self.unwritten);
        let written = self.write(&bytes)?;
        self.unwritten.extend_from_slice(&bytes[written..]);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Whether the client asked for the end, and everything is written.
    pub fn is_over(&self) -> bool {
        self.last && !self.owes()
    }
}
