//! What `h2` takes for the socket: two buffers.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug, Default)]
struct Buffers {
    input: Vec<u8>,
    /// How much of the input was read.
    read: usize,
    /// After the input nothing comes.
    ended: bool,
    output: Vec<u8>,
}

/// One side gives input and takes output, the other, `h2`, reads and writes. Reading waits where
/// input is lacking; writing never waits, so that all input is always understood at once.
#[derive(Debug, Clone, Default)]
pub(super) struct Pipe(Rc<RefCell<Buffers>>);

impl Pipe {
    pub(super) fn give(&self, input: &[u8]) {
        let mut buffers = self.0.borrow_mut();
        if buffers.read == buffers.input.len() {
            buffers.input.clear();
            buffers.read = 0;
        }
        buffers.input.extend_from_slice(input);
    }

    pub(super) fn end(&self) {
        self.0.borrow_mut().ended = true;
    }

    pub(super) fn output_length(&self) -> usize {
        self.0.borrow().output.len()
    }

    /// Exchanges the output for an empty buffer.
    pub(super) fn take_output(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        std::mem::swap(buffer, &mut self.0.borrow_mut().output);
    }
}

impl AsyncRead for Pipe {
    /// Who is to be woken is not remembered: whoever gives input polls.
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = self.0.borrow_mut();
        let left = &buffers.input[buffers.read..];
        if left.is_empty() && !buffers.ended {
            return Poll::Pending;
        }
        let size = left.len().min(into.remaining());
        into.put_slice(&left[..size]);
        buffers.read += size;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().output.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let output = &mut self.0.borrow_mut().output;
        let before = output.len();
        for piece in pieces {
            output.extend_from_slice(piece);
        }
        Poll::Ready(Ok(output.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
