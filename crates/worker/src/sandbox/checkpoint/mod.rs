//! Checkpoints: the images of an instance's processes, of which others are restored.
//!
//! CRIU makes and restores them inside the namespaces of an instance's first process, where the runtime is a plain
//! process to it: file system, network and the numbers of processes are what they are in every instance. So a
//! checkpoint holds processes and nothing of the sandbox. It is the function's own, is used by it as it is now, and
//! lasts as long as the worker: none of other code, another kernel or another processor is ever restored.
//!
//! | module | concern |
//! |---|---|
//! | [`criu`] | which program it is, and whether it works here |
//! | [`dump`](mod@dump) | making one |
//! | [`stage`] | what a restored instance's first process finds of it |
//! | [`privileged`] | being another user and keeping all rights |

mod criu;
mod dump;
mod privileged;
mod stage;

use std::os::fd::AsFd;

use tokio::time::{Instant, timeout_at};

pub(super) use criu::{Criu, complaint};
pub(super) use stage::Staged;

use super::host::Host;
use super::kept::Kept;
use super::kept::Place;
use super::live::Instance;

/// What is to be known of a checkpoint besides its files.
#[derive(Debug, Clone)]
pub(super) struct Dumped {
    /// What the pipe is called that the runtime prints to.
    pub output: String,
    /// Whom it ran as.
    pub user: u32,
}

impl Host {
    /// Whether instances can be restored from checkpoints on this machine; the error says why not: what follows a
    /// colon. Waits.
    pub fn probe_checkpoints() -> Result<(), String> {
        let folder = std::env::temp_dir().join(format!("uncia-criu-{}", std::process::id()));
        let found = Criu::find(&folder);
        let _ = std::fs::remove_dir_all(folder);
        found.map(drop)
    }

    /// [`Self::probe_checkpoints`], found out once. Waits.
    pub(crate) fn can_restore(&self) -> Result<(), String> {
        self.criu().map(drop)
    }

    /// CRIU, or why there is none. Waits.
    pub(super) fn criu(&self) -> Result<&Criu, String> {
        let find = || Criu::find(&self.state.join("checkpoints").join(".criu"));
        self.criu.get_or_init(find).as_ref().map_err(Clone::clone)
    }
}

impl Instance {
    /// Makes a checkpoint of what the instance is now, while it serves nothing. `goes_on`: whether it lives on; it
    /// does not if none is made by the deadline.
    pub(super) async fn checkpoint(
        &self,
        place: Place,
        goes_on: bool,
        deadline: Instant,
    ) -> Result<Kept, String> {
        // Until it asks for an event, it works on the answer to the last.
        let rested = timeout_at(deadline, self.inner().api.rest()).await;
        let rested = rested.map_err(|_| "it does not ask for another event")?;
        rested.map_err(|failure| failure.message)?;
        let instance = self.clone();
        let made = tokio::task::spawn_blocking(move || {
            let inner = instance.inner();
            let host = inner.host.upgrade().ok_or("the worker is closing")?;
            let criu = host.criu()?;
            let first = (inner.pidfd.get_ref().as_fd(), inner.pid);
            let dumped = dump::dump(criu, first, inner.user.number, place.path(), goes_on)?;
            place.keep(Some(dumped))
        });
        let Ok(made) = timeout_at(deadline, made).await else {
            // CRIU is in the instance's namespace of processes, where the function may stop it: both end.
            self.inner().kill();
            return Err("CRIU took too long".into());
        };
        made.map_err(|error| error.to_string())?
    }
}
