//! How many requests run at a time: as many as there are instances for, and memory.

use tokio::sync::{AcquireError, Semaphore, SemaphorePermit};
use uncia_code::HOST_BYTES;

use crate::engine::INSTANCES;

const MB: usize = 1 << 20;

/// Of the host's memory, what it needs itself: machine code, stacks, and what is kept of instances for the
/// next.
const OWN_BYTES: u64 = 512 << 20;

/// What the functions of requests may have together.
const FUNCTIONS_BYTES: u64 = HOST_BYTES - OWN_BYTES;

/// What a function has of a memory limit, in bytes: no more than there is room for, which one alone would end the host
/// by using up.
pub(crate) fn possible(limit_bytes: u64) -> usize {
    usize::try_from(limit_bytes.min(FUNCTIONS_BYTES)).unwrap_or(usize::MAX)
}

/// Room for requests, who come first enter first: beyond their memory the kernel would end the host, and all
/// that is in it.
pub(crate) struct Room {
    instances: Semaphore,
    /// What the functions of requests may have together, whether they have it or not.
    megabytes: Semaphore,
    most: u32,
}

/// Room of one request, as long as it lives.
pub(crate) struct Inside<'a> {
    _memory: SemaphorePermit<'a>,
    _instance: SemaphorePermit<'a>,
}

impl Room {
    pub(crate) fn new() -> Self {
        let most = (FUNCTIONS_BYTES >> 20) as u32;
        let megabytes = Semaphore::new(most as usize);
        Self { instances: Semaphore::new(INSTANCES as usize), megabytes, most }
    }

    /// Waits until there is room for a request whose function may have so many bytes, of which
    /// [`possible`] are no more than all.
    ///
    /// # Errors
    /// Never: nobody closes it.
    pub(crate) async fn enter(&self, bytes: usize) -> Result<Inside<'_>, AcquireError> {
        let megabytes = u32::try_from(bytes.div_ceil(MB)).unwrap_or(u32::MAX).min(self.most);
        Ok(Inside {
            _memory: self.megabytes.acquire_many(megabytes).await?,
            _instance: self.instances.acquire().await?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn functions_enter_as_far_as_their_memory_is_there() {
        let room = Room::new();
        let mut context = Context::from_waker(Waker::noop());
        let mut enter = |bytes: usize| match pin!(room.enter(bytes)).poll(&mut context) {
            Poll::Ready(inside) => Some(inside.unwrap()),
            Poll::Pending => None,
        };
        let two = [enter(1792 * MB), enter(1792 * MB)];
        assert!(two.iter().all(Option::is_some));
        assert!(enter(1).is_none());
        drop(two);
        let all = enter(possible(u64::MAX));
        assert!(all.is_some() && enter(1).is_none());
        drop(all);
        let many: Vec<_> = (0..INSTANCES).map(|_| enter(MB)).collect();
        assert!(many.iter().all(Option::is_some));
        assert!(enter(MB).is_none());
        assert_eq!(possible(128 << 20), 128 << 20);
        assert_eq!(possible(10 << 30), 3584 << 20);
    }
}
