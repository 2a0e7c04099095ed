//! What a function prints.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use nix::errno::Errno;
use tokio::io::unix::AsyncFd;

use super::descriptor::readable;
use super::telemetry::{Kind, Telemetry};

/// How much of an invocation's output is kept, as on Lambda.
const TAIL_BYTES: usize = 4096;

/// One read; as much as a pipe holds by default.
const CHUNK_BYTES: usize = 64 * 1024;

/// Between two reads: up to 64 MB a second pass.
const PAUSE: Duration = Duration::from_millis(1);

/// Reads at the end of an invocation: enough for all that a pipe can hold, and an end for a function
/// whose children never stop printing.
const DRAIN_READS: usize = 16;

/// The last of a function's output. The pipe is always read, so printing never blocks for long, and
/// only the tail is kept, so it never takes memory.
pub(super) struct Log {
    pipe: AsyncFd<OwnedFd>,
    /// What extensions print to, if there are any.
    extensions: Option<AsyncFd<OwnedFd>>,
    tail: Mutex<Tail>,
    /// Told of each line, if somebody may want to know.
    telemetry: Option<Arc<Telemetry>>,
}

struct Tail {
    kept: VecDeque<u8>,
    chunk: Box<[u8]>,
}

impl Log {
    /// `pipe` is the reading end, which must not block.
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        let chunk = vec![0; CHUNK_BYTES].into_boxed_slice();
        let tail = Tail { kept: VecDeque::with_capacity(TAIL_BYTES), chunk };
        let tail = Mutex::new(tail);
        Ok(Self { pipe: readable(pipe)?, extensions: None, tail, telemetry: None })
    }

    /// Has it read what extensions print too, and tell of all lines.
    pub(super) fn with_telemetry(
        self,
        extensions: Option<OwnedFd>,
        telemetry: Arc<Telemetry>,
    ) -> io::Result<Self> {
        let extensions = extensions.map(readable).transpose()?;
        Ok(Self { extensions, telemetry: Some(telemetry), ..self })
    }

    /// Reads until nobody can print any more. Not more often than every [`PAUSE`]: the pipe holds
    /// back who prints faster, and a function that prints without end costs others little.
    pub(super) async fn follow(&self) {
        let extensions = async {
            if let Some(pipe) = &self.extensions {
                self.follow_one(pipe, Kind::Extension).await;
            }
        };
        tokio::join!(self.follow_one(&self.pipe, Kind::Function), extensions);
    }

    async fn follow_one(&self, pipe: &AsyncFd<OwnedFd>, kind: Kind) {
        loop {
            let Ok(mut ready) = pipe.readable().await else { return };
            match self.lock().read(pipe, kind, self.telemetry.as_deref()) {
                Ok(0) => return,
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                // An unknown error may pass, and a pipe that nobody reads stops the function.
                Ok(_) | Err(_) => {}
            }
            drop(ready);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Forgets what was printed so far.
    pub(super) fn begin(&self) {
        self.drain().kept.clear();
    }

    /// The last of what was printed since [`Self::begin`].
    pub(super) fn tail(&self) -> Bytes {
        let tail = self.drain();
        if tail.kept.is_empty() { Bytes::new() } else { tail.kept.iter().copied().collect() }
    }

    /// Reads what was printed so far.
    pub(super) fn catch_up(&self) {
        drop(self.drain());
    }

    fn drain(&self) -> MutexGuard<'_, Tail> {
        let mut tail = self.lock();
        let telemetry = self.telemetry.as_deref();
        tail.drain(&self.pipe, Kind::Function, telemetry);
        if let Some(pipe) = &self.extensions {
            tail.drain(pipe, Kind::Extension, telemetry);
        }
        tail
    }

    fn lock(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tail {
    fn read(
        &mut self,
        pipe: &impl AsFd,
        kind: Kind,
        telemetry: Option<&Telemetry>,
    ) -> Result<usize, Errno> {
        let count = nix::unistd::read(pipe, &mut self.chunk)?;
        let new = &self.chunk[..count];
        if let Some(telemetry) = telemetry {
            telemetry.printed(kind, new);
        }
        let new = &new[new.len().saturating_sub(TAIL_BYTES)..];
        let excess = (self.kept.len() + new.len()).saturating_sub(TAIL_BYTES);
        self.kept.drain(..excess);
        self.kept.extend(new);
        Ok(count)
    }

    fn drain(&mut self, pipe: &impl AsFd, kind: Kind, telemetry: Option<&Telemetry>) {
        for _ in 0..DRAIN_READS {
            match self.read(pipe, kind, telemetry) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use nix::fcntl::OFlag;
    use nix::unistd::{pipe2, write};

    use super::*;

    #[tokio::test]
    async fn only_the_tail_of_the_invocation_is_kept() {
        let (read, print) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let log = Log::new(read).unwrap();
        write(&print, b"before").unwrap();
        log.begin();
        write(&print, b"one ").unwrap();
        write(&print, b"two").unwrap();
        assert_eq!(&log.tail()[..], b"one two");
        write(&print, &[b'x'; 5000]).unwrap();
        write(&print, b"end").unwrap();
        let tail = log.tail();
        assert_eq!(tail.len(), TAIL_BYTES);
        assert!(tail.ends_with(b"xend"));
    }

    #[tokio::test]
    async fn following_ends_with_the_last_writer() {
        let (read, print) = pipe2(OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).unwrap();
        let log = Log::new(read).unwrap();
        let printing = std::thread::spawn(move || {
            let print = std::fs::File::from(print);
            let flags = nix::fcntl::FcntlArg::F_SETFL(OFlag::empty());
            nix::fcntl::fcntl(&print, flags).unwrap();
            for _ in 0..100 {
                (&print).write_all(&[b'y'; 10_000]).unwrap();
            }
        });
        log.follow().await;
        printing.join().unwrap();
        assert_eq!(log.tail().len(), TAIL_BYTES);
    }
}
