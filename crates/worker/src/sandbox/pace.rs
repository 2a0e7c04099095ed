//! How much work an instance may make the worker do.
//!
//! What a function uses is limited by its control groups; what the worker does on its behalf is
//! not. Sending a byte costs a function next to nothing, and receiving it costs the worker a wake-up.
//! So each read, chunk and request has a price in time, and an instance that has overdrawn its account
//! is read from only after that time: until then its own writes wait, and gather to larger ones.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// One read, whatever it brings: 4,000 a second, some 3% of a CPU.
pub(super) const READ: Duration = Duration::from_micros(250);
/// Taking apart one chunk of a body: 200,000 a second, less than 1% of a CPU.
pub(super) const CHUNK: Duration = Duration::from_micros(5);
/// A new connection, or a request that is refused.
pub(super) const REQUEST: Duration = Duration::from_micros(500);

/// What may be overdrawn at once: far more than a large answer takes.
const BURST: Duration = Duration::from_secs(1);
/// What an answer to an invocation gives back, besides its body's reads: clients come by as many
/// invocations as they like, in connections and reads as many as their library needs.
const ANSWER: Duration = Duration::from_millis(5);
/// Reads of a body are taken to bring at least this much.
const BYTES_PER_READ: u64 = 8 * 1024;

/// The account of one instance.
#[derive(Debug)]
pub(super) struct Pace {
    /// When the account is balanced again, if that is yet to come.
    balanced: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { balanced: Mutex::new(Instant::now()) })
    }

    /// Takes `price` from the account; returns when it is not overdrawn any more, if it is.
    pub(super) fn charge(&self, price: Duration) -> Option<Instant> {
        let now = Instant::now();
        let mut balanced = self.balanced.lock().unwrap_or_else(PoisonError::into_inner);
        *balanced = (*balanced).max(now) + price;
        let resume = balanced.checked_sub(BURST)?;
        (resume > now).then_some(resume)
    }

    /// Takes `price` from the account, and waits if it is overdrawn.
    pub(super) async fn spend(&self, price: Duration) {
        if let Some(resume) = self.charge(price) {
            tokio::time::sleep_until(resume).await;
        }
    }

    /// Whether the account is not balanced.
    pub(super) fn owes(&self) -> bool {
        *self.balanced.lock().unwrap_or_else(PoisonError::into_inner) > Instant::now()
    }

    /// Gives back what receiving an answer of so many bytes cost.
    pub(super) fn answered(&self, bytes: u64) {
        let reads = u32::try_from(bytes / BYTES_PER_READ).unwrap_or(u32::MAX);
        let refund = ANSWER + READ.saturating_mul(reads);
        let mut balanced = self.balanced.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(earlier) = balanced.checked_sub(refund) {
            *balanced = earlier;
        }
    }
}

/// A connection of which every read is charged.
pub struct Paced<S> {
    stream: S,
    pace: Arc<Pace>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, pace: Arc<Pace>) -> Self {
        Self { stream, pace, wait: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.wait = self.pace.charge(READ).map(|resume| Box::pin(tokio::time::sleep_until(resume)));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_account_may_be_overdrawn_once() {
        let pace = Pace::new();
        assert_eq!(pace.charge(BURST / 2), None);
        assert!(pace.charge(BURST).is_some());
        pace.answered(BYTES_PER_READ * 10_000);
        assert_eq!(pace.charge(REQUEST), None);
        // Nobody saves for later.
        assert!(pace.charge(2 * BURST).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn reads_are_charged() {
        use tokio::io::AsyncReadExt;

        let pace = Pace::new();
        pace.charge(BURST * 9 / 10);
        let bytes = [b'x'; 1000];
        let mut source = Paced::new(&bytes[..], pace.clone());
        let began = Instant::now();
        let mut one = [0];
        for _ in 0..1000 {
            source.read_exact(&mut one).await.unwrap();
        }
        // 1,000 reads cost 250 ms, of which at most 100 ms were left.
        assert!(began.elapsed() >= Duration::from_millis(100), "{:?}", began.elapsed());
    }
}
