//! Where packages come from by HTTP: stores of objects, and registries of images.
//!
//! Neither is trusted: whoever reads what they give checks its digest, and waits for none of it without end.

pub(crate) mod registry;
pub(crate) mod s3;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::timeout;
use uncia_oci::Digest;
use uncia_oci::digest::Digesting;

/// How long an answer, and each piece of it, may be waited for.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a transfer may take at most, however steadily it trickles; so long, and longer with its bytes.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(600);
/// What a transfer has to bring a second beyond that.
const LEAST_BYTES_PER_S: u64 = 10_000_000;
const BUFFER_BYTES: usize = 256 * 1024;

/// Why something could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RemoteError {
    /// A sentence.
    #[error("{0}")]
    Refused(String),
    /// The package has more bytes than allowed, so many as far as is known.
    #[error("the package has {0} bytes, which are too many")]
    TooLarge(u64),
}

/// An answer whose body is read as a file is. Only for threads that may wait.
pub(crate) struct Answer {
    pub head: http::response::Parts,
    body: Incoming,
    piece: Bytes,
}

/// Sends a request to `HOST:PORT` (host and port), and waits for the head of the answer. Only for threads that may
/// wait; the error is half a sentence.
fn send(host: &str, port: u16, request: Request<Empty<Bytes>>) -> Result<Answer, String> {
    let asked = async {
        let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        // Ends with the answer, whatever becomes of the request.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| error.to_string())
    };
    let answer = Handle::current().block_on(async { timeout(IDLE_TIMEOUT, asked).await });
    let answer: Response<Incoming> = answer.map_err(|_| silent())??;
    Ok(answer.into())
}

impl From<Response<Incoming>> for Answer {
    fn from(answer: Response<Incoming>) -> Self {
        let (head, body) = answer.into_parts();
        Self { head, body, piece: Bytes::new() }
    }
}

fn silent() -> String {
    format!("it has not answered for {} s", IDLE_TIMEOUT.as_secs())
}

impl Answer {
    /// The first `most` bytes of its body.
    fn text(self, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        Deadline::of_bytes(most).bound(self.take(most)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The length that it declares.
    fn declared(&self) -> Option<u64> {
        self.head.headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }
}

impl Read for Answer {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let next = async { timeout(IDLE_TIMEOUT, self.body.frame()).await };
            match Handle::current().block_on(next).map_err(|_| io::Error::other(silent()))? {
                None => return Ok(0),
                Some(Ok(frame)) => self.piece = frame.into_data().unwrap_or_default(),
                Some(Err(error)) => return Err(io::Error::other(error)),
            }
        }
        let count = self.piece.len().min(buffer.len());
        self.piece.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

/// When transfers must be complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    end: Instant,
    after: Duration,
}

impl Deadline {
    /// From now on, for so many bytes.
    pub(crate) fn of_bytes(bytes: u64) -> Self {
        Self::after(TRANSFER_TIMEOUT + Duration::from_secs(bytes / LEAST_BYTES_PER_S))
    }

    fn after(after: Duration) -> Self {
        Self { end: Instant::now() + after, after }
    }

    /// A source whose reads fail once the time is up.
    pub(crate) fn bound<R: Read>(self, source: R) -> Bounded<R> {
        Bounded { source, deadline: self }
    }
}

/// See [`Deadline::bound`].
pub(crate) struct Bounded<R> {
    source: R,
    deadline: Deadline,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Deadline { end, after } = self.deadline;
        if Instant::now() >= end {
            return Err(io::Error::other(format!(
                "it is not complete after {} s",
                after.as_secs()
            )));
        }
        self.source.read(buffer)
    }
}

/// Why a body is not on the disk.
#[derive(Debug)]
pub(crate) enum SaveError {
    /// It does not come whole.
    Source(io::Error),
    /// The machine's fault.
    Disk(io::Error),
}

/// Writes what it reads until the deadline to a new file, up to `most` bytes and one more; returns its digest and its
/// size.
pub(crate) fn save(
    source: impl Read,
    file: &Path,
    most: u64,
    deadline: Deadline,
) -> Result<(Digest, u64), SaveError> {
    let mut source = Digesting::new(deadline.bound(source.take(most.saturating_add(1))));
    let mut file = File::create_new(file).map_err(SaveError::Disk)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match source.read(&mut buffer).map_err(SaveError::Source)? {
            0 => return source.finish().map_err(SaveError::Source),
            count => file.write_all(&buffer[..count]).map_err(SaveError::Disk)?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_trickles_without_end_ends() {
        let folder = tempfile::tempdir().unwrap();
        let deadline = Deadline::after(Duration::from_millis(50));
        let saved = save(io::repeat(0), &folder.path().join("file"), u64::MAX, deadline);
        let Err(SaveError::Source(error)) = saved else { panic!("{saved:?}") };
        assert!(error.to_string().contains("not complete after"), "{error}");
    }
}
