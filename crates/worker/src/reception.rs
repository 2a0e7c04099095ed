//! Bodies in reception: what the worker holds of requests and answers that are not all there, or not
//! all sent, yet.
//!
//! Whoever sends a large body, or the beginning of one, occupies the worker's memory. So there is room
//! for a fixed amount at a time, in one pool for clients and in another for functions; further bodies
//! wait in their sockets. Nobody keeps room from others by not going on: when it is needed, whoever
//! has had some for long gives it up.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// Bodies up to this size take no room of the pools; connections are few.
pub(crate) const FREE_BYTES: usize = 64 * 1024;

/// Receiving a body takes milliseconds, or its sender computes it meanwhile; after this time it must
/// give way to others.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers of functions, and what functions send to each other.
pub(crate) static FUNCTIONS: Pool = Pool::new(40, PATIENCE);
/// What clients send: one package of the largest size, or many payloads.
pub(crate) static CLIENTS: Pool = Pool::new(96, PATIENCE);

/// What the platform itself answers with: pages of its log, and packages.
pub(crate) static OWN_ANSWERS: Pool = Pool::new(32, PATIENCE);

/// What is read of images' layers and not sent yet. Who takes one has it for minutes, and loses it only by taking
/// nothing.
pub(crate) static LAYERS: Pool = Pool::new(32, PATIENCE);

/// Room for bodies.
pub(crate) struct Pool {
    kib: usize,
    patience: Duration,
    room: Semaphore,
    waiting: AtomicUsize,
    needed: Notify,
}

/// Room for a body, until it is dropped.
pub(crate) struct Room {
    pool: &'static Pool,
    since: Instant,
    _permit: SemaphorePermit<'static>,
}

impl Pool {
    pub(crate) const fn new(mib: usize, patience: Duration) -> Self {
        let kib = mib * 1024;
        Self {
            kib,
            patience,
            room: Semaphore::const_new(kib),
            waiting: AtomicUsize::new(0),
            needed: Notify::const_new(),
        }
    }

    /// Waits for room for `bytes`; there is none to wait for if they are few.
    pub(crate) async fn enter(&'static self, bytes: usize) -> Option<Room> {
        if bytes <= FREE_BYTES {
            return None;
        }
        let kib = bytes.div_ceil(1024).min(self.kib);
        let permits = u32::try_from(kib).unwrap_or(u32::MAX);
        let permit = if let Ok(permit) = self.room.try_acquire_many(permits) {
            permit
        } else {
            let _waiting = Waiting::begin(self);
            self.room.acquire_many(permits).await.ok()?
        };
        Some(Room { pool: self, since: Instant::now(), _permit: permit })
    }
}

/// Counts one who waits, as long as it does.
struct Waiting(&'static Pool);

impl Waiting {
    fn begin(pool: &'static Pool) -> Self {
        pool.waiting.fetch_add(1, Ordering::SeqCst);
        pool.needed.notify_waiters();
        Self(pool)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Resolves when the room has been had for long and others wait for it; never without room.
pub(crate) async fn outstayed(room: Option<&Room>) {
    let Some(room) = room else { return std::future::pending().await };
    tokio::time::sleep_until(room.since + room.pool.patience).await;
    loop {
        let mut needed = std::pin::pin!(room.pool.needed.notified());
        needed.as_mut().enable();
        if room.pool.waiting.load(Ordering::SeqCst) > 0 {
            return;
        }
        needed.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);
    static POOL: Pool = Pool::new(1, SHORT);

    #[tokio::test]
    async fn room_is_given_up_when_others_need_it() {
        assert!(POOL.enter(FREE_BYTES).await.is_none());
        let first = POOL.enter(1 << 20).await;
        let kept = tokio::time::timeout(5 * SHORT, outstayed(first.as_ref()));
        assert!(kept.await.is_err(), "nobody needs it");
        let second = tokio::spawn(POOL.enter(100 << 20));
        outstayed(first.as_ref()).await;
        assert!(!second.is_finished());
        drop(first);
        assert!(second.await.unwrap().is_some());
        assert_eq!(POOL.waiting.load(Ordering::SeqCst), 0);
    }
}
