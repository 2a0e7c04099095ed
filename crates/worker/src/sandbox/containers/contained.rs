//! An instance's container, as the worker has it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::{OciRuntime, bundle, leftovers};
use crate::sandbox::spawn;
use crate::sandbox::threads;
use crate::sandbox::wire::{self, Container, InitConfig, Order};

/// How long the runtime may take to end and forget a container before all of it is killed.
const ORDERLY_END: Duration = Duration::from_secs(2);

/// A container. Dropping it removes what it has on disk, unless [`Self::remove`] did.
pub(in crate::sandbox) struct Contained {
    container: Container,
    /// The worker's.
    name: String,
    ending: AtomicBool,
    removed: AtomicBool,
}

impl Contained {
    /// A container that is not made yet; `None` if the runtime is not installed any more. `name`: the worker's.
    pub(in crate::sandbox) fn new(
        runtime: OciRuntime,
        state: &Path,
        name: &str,
        id: &str,
    ) -> Option<Self> {
        Some(Self {
            container: runtime.container(state, id, runtime.program()?),
            name: name.to_owned(),
            ending: AtomicBool::new(false),
            removed: AtomicBool::new(false),
        })
    }

    pub(in crate::sandbox) fn container(&self) -> &Container {
        &self.container
    }

    /// Writes its bundle. Only for threads that may wait.
    pub(in crate::sandbox) fn write(&self, config: &InitConfig) -> io::Result<()> {
        bundle::write(config, &self.container, &self.name)
    }

    /// Has the first process end and forget it, and kills that if it takes too long; false if it cannot be told.
    pub(in crate::sandbox) fn end(
        &self,
        control: &AsyncFd<OwnedFd>,
        first: &AsyncFd<OwnedFd>,
    ) -> bool {
        if self.ending.swap(true, Ordering::SeqCst) {
            // Its time runs.
            return true;
        }
        let (Ok(runtime), Ok(first)) = (Handle::try_current(), first.get_ref().try_clone()) else {
            return false;
        };
        if wire::send(control.as_raw_fd(), &Order::End, &[]).is_err() {
            return false;
        }
        runtime.spawn(async move {
            tokio::time::sleep(ORDERLY_END).await;
            // It has ended by now.
            let _ = spawn::kill(&first);
        });
        true
    }

    /// Removes what is left of it, once its first process has ended. Only for threads that may wait.
    pub(in crate::sandbox) fn remove(&self) -> io::Result<()> {
        self.removed.store(true, Ordering::SeqCst);
        leftovers::remove(&self.container, &self.name)
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        if !self.removed.load(Ordering::SeqCst) {
            let (container, name) = (self.container.clone(), std::mem::take(&mut self.name));
            // What cannot be removed, the next worker removes.
            threads::run_aside(move || drop(leftovers::remove(&container, &name)));
        }
    }
}
