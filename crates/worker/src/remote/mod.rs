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
/// In each such time a transfer must end or bring so many bytes, 17 kB/s: one that trickles ends soon, since starts wait
/// for it, and one over a busy link has the time that it needs.
const SPELL: Duration = Duration::from_secs(60);
const LEAST_BYTES: u64 = 1_000_000;
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
        Steady::new(self.take(most)).read_to_end(&mut bytes)?;
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

/// A source whose reads fail once it brings too little: see [`SPELL`].
pub(crate) struct Steady<R> {
    source: R,
    spell: Duration,
    began: Instant,
    /// Since then.
    bytes: u64,
}

impl<R: Read> Steady<R> {
    pub(crate) fn new(source: R) -> Self {
        Self::with_spell(source, SPELL)
    }

    fn with_spell(source: R, spell: Duration) -> Self {
        Self { source, spell, began: Instant::now(), bytes: 0 }
    }
}

impl<R: Read> Read for Steady<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.began.elapsed() >= self.spell {
            if self.bytes < LEAST_BYTES {
                return Err(io::Error::other(format!(
                    "it brought {} bytes in {} s, which is too slow",
                    self.bytes,
                    self.spell.as_secs()
                )));
            }
            (self.began, self.bytes) = (Instant::now(), 0);
        }
        let count = self.source.read(buffer)?;
        self.bytes += count as u64;
        Ok(count)
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

/// Writes what it reads to a new file, as long as it is not too slow, up to `most` bytes and one more; returns its
/// digest and its size.
pub(crate) fn save(source: impl Read, file: &Path, most: u64) -> Result<(Digest, u64), SaveError> {
    let mut source = Digesting::new(Steady::new(source.take(most.saturating_add(1))));
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
    fn what_trickles_ends_and_what_is_steady_takes_its_time() {
        let spell = Duration::from_millis(20);
        let mut trickling = Steady::with_spell(io::repeat(0), spell);
        let mut byte = [0];
        let error = loop {
            if let Err(error) = trickling.read(&mut byte) {
                break error;
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(error.to_string().contains("too slow"), "{error}");

        let mut steady = Steady::with_spell(io::repeat(0), spell);
        let mut piece = vec![0; 2 * LEAST_BYTES as usize];
        for _ in 0..3 {
            assert_eq!(steady.read(&mut piece).unwrap(), piece.len());
            std::thread::sleep(spell);
        }
    }
}
