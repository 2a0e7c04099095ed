//! The one thread that reads requests, decides, and answers.

use std::io;

use tokio::runtime::{Builder, Runtime};
use tokio::task::spawn_blocking;

/// What can be read, written or taken apart while others wait, in bytes: some 100 us of work.
const SMALL: usize = 64 * 1024;

/// The runtime for a [`Worker`](crate::serve::Worker). One thread reads a request, decides, and gives
/// it to the instance: each further one would have to be woken, which takes longer than all that it
/// could do. What waits for the disk or the kernel has threads of its own.
///
/// # Errors
/// The system has no room for it.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Does work whose time grows with so many bytes: on another thread if they are many, so that nobody
/// else waits for it.
pub(crate) async fn in_proportion<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= SMALL {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        // A task that blocks cannot be cancelled, so it has panicked.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
