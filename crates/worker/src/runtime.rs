//! The one thread that reads requests, decides, and answers.

use std::io;

use tokio::runtime::{Builder, Runtime};

/// The runtime for a [`Worker`](crate::serve::Worker). One thread reads a request, decides, and gives
/// it to the instance: each further one would have to be woken, which takes longer than all that it
/// could do. What waits for the disk or the kernel has threads of its own.
///
/// # Errors
/// The system has no room for it.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
