//! A connection's sending side.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{MsgFlags, recv};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;

use super::message::ONE_WRITE;
use crate::instance::Request;

/// Answers that were held back are sent with the next once there is so much of them.
const MAX_UNSENT: usize = 16 * 1024;

/// A connection's sending side.
pub(super) struct Writer {
    half: OwnedWriteHalf,
    /// Answers that wait to be sent with the next: see [`crate::sandbox::http1`].
    unsent: Vec<u8>,
}

impl Writer {
    pub(super) fn new(half: OwnedWriteHalf) -> Self {
        Self { half, unsent: Vec::new() }
    }

    /// Keeps an answer until the next is sent; false if that would be too much to keep.
    pub(super) fn hold_back(&mut self, bytes: &[u8]) -> bool {
        let keep = self.unsent.len() < MAX_UNSENT;
        if keep {
            self.unsent.extend_from_slice(bytes);
        }
        keep
    }

    /// Sends the beginning of a message; returns how much of it, once there is some.
    pub(super) async fn begin(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.unsent.is_empty() {
            let unsent = std::mem::take(&mut self.unsent);
            self.half.write_all(&unsent).await?;
        }
        self.half.write(bytes).await
    }

    /// Sends bytes after what was held back.
    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.unsent.is_empty() {
            return self.half.write_all(bytes).await;
        }
        self.unsent.extend_from_slice(bytes);
        let unsent = std::mem::take(&mut self.unsent);
        self.half.write_all(&unsent).await
    }

    /// Sends what [`Self::begin`] has not sent of an event.
    pub(super) async fn finish(
        &mut self,
        rest: &[u8],
        request: &Request,
        close: bool,
    ) -> io::Result<()> {
        self.half.write_all(rest).await?;
        if request.payload.len() > ONE_WRITE {
            self.half.write_all(&request.payload).await?;
        }
        if close {
            self.half.shutdown().await?;
        }
        Ok(())
    }

    /// Whether the client has not closed the connection, as far as is known.
    pub(super) fn is_open(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        match recv(self.half.as_ref().as_raw_fd(), &mut [0], flags) {
            Ok(count) => count > 0,
            Err(error) => error == nix::errno::Errno::EAGAIN,
        }
    }
}
