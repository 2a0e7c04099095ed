//! Freezing a group, for two reasons that may hold at once: it is paused, or its CPU time is used up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::Group;
use crate::{Controller, Error};

/// How long freezing may take. A process in the middle of vfork or of a slow disk access holds it up.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(1);

/// Looks at the state that follow each other at once; freezing takes about 0.1 ms.
const FREEZE_SPINS: u32 = 20;

const FREEZE_POLL: Duration = Duration::from_millis(1);

/// Why a group is frozen: it runs when there is no reason left.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    /// It is paused in its keep-alive.
    paused: bool,
    /// It has used its CPU time of this period.
    held: bool,
    /// It is ending, and is never frozen again.
    released: bool,
    /// The freezer's file, open from the first time on that it was written: whoever could freeze the
    /// group can thaw it, even if there is no descriptor left.
    freezer: Option<File>,
}

impl Group {
    /// The file, and what to write to it, that lets a frozen group run.
    #[must_use]
    pub fn thaw_file(&self) -> Option<(PathBuf, String)> {
        let (file, value) = self.interface().freezer(false);
        Some((self.folder(Controller::Freezer)?.join(file), value.to_owned()))
    }

    /// Stops every process of the group and waits until all have stopped, until [`Self::thaw`].
    ///
    /// # Errors
    /// There is no freezer, a process does not stop, or the group is ending.
    pub async fn freeze(&self) -> Result<(), Error> {
        let folder = self.folder(Controller::Freezer).ok_or(Error::NoFreezer)?;
        {
            let mut stopped = self.stopped();
            if stopped.released {
                return Err(Error::Ending);
            }
            self.write_freezer(&mut stopped, true)?;
            stopped.paused = true;
        }
        let frozen = self.until_frozen(folder).await;
        if frozen.is_err() && !self.stopped().released {
            // Whoever is told that it is not frozen does not thaw it.
            self.thaw()?;
        }
        frozen
    }

    async fn until_frozen(&self, folder: &Path) -> Result<(), Error> {
        let deadline = tokio::time::Instant::now() + FREEZE_TIMEOUT;
        let mut looks = 0;
        while !self.interface().is_frozen(folder)? {
            if self.stopped().released {
                return Err(Error::Ending);
            }
            if tokio::time::Instant::now() > deadline {
                return Err(Error::Unfreezable(folder.to_owned()));
            }
            looks += 1;
            if looks < FREEZE_SPINS {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(FREEZE_POLL).await;
            }
        }
        Ok(())
    }

    /// Has the kernel give up the memory of a paused group that it can have again: pages of files, and with
    /// swap all. Blocks while it does; nothing is done for a group that runs, or goes on for one that is thawed
    /// meanwhile, but on version 1 what was begun.
    ///
    /// # Errors
    /// There is no controller of memory, or the kernel cannot (version 2: before Linux 5.19).
    pub fn reclaim(&self) -> Result<(), Error> {
        let folder = self.folder(Controller::Memory).ok_or(Error::NotMounted("memory"))?;
        self.interface().reclaim(folder, &|| self.stopped().paused)
    }

    /// Undoes [`Self::freeze`]. What has no CPU time left is held on until it has.
    ///
    /// # Errors
    /// The freezer cannot be written: the group is gone.
    pub fn thaw(&self) -> Result<(), Error> {
        let mut stopped = self.stopped();
        stopped.paused = false;
        if stopped.held { Ok(()) } else { self.write_freezer(&mut stopped, false) }
    }

    /// Stops the group because its CPU time is used up, until [`Self::let_go`]. Does not wait.
    ///
    /// # Errors
    /// As [`Self::thaw`].
    pub fn hold(&self) -> Result<(), Error> {
        let mut stopped = self.stopped();
        if stopped.released || stopped.held {
            return Ok(());
        }
        stopped.held = true;
        if stopped.paused { Ok(()) } else { self.write_freezer(&mut stopped, true) }
    }

    /// Undoes [`Self::hold`]. What is paused stays so.
    ///
    /// # Errors
    /// As [`Self::thaw`].
    pub fn let_go(&self) -> Result<(), Error> {
        let mut stopped = self.stopped();
        if !std::mem::take(&mut stopped.held) || stopped.paused {
            return Ok(());
        }
        self.write_freezer(&mut stopped, false)
    }

    /// Lets it run whatever the reasons not to, and for good: it is about to end, and what is frozen
    /// ends on no signal.
    ///
    /// # Errors
    /// As [`Self::thaw`].
    pub fn release(&self) -> Result<(), Error> {
        let mut stopped = self.stopped();
        (stopped.paused, stopped.held, stopped.released) = (false, false, true);
        self.write_freezer(&mut stopped, false)
    }

    fn stopped(&self) -> MutexGuard<'_, Stopped> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under the lock, so that the last word is the right one.
    fn write_freezer(&self, stopped: &mut Stopped, freeze: bool) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Freezer) else { return Ok(()) };
        let (name, value) = self.interface().freezer(freeze);
        let path = folder.join(name);
        let mut write = || {
            let file = match &mut stopped.freezer {
                Some(file) => file,
                none => none.insert(File::options().write(true).open(&path)?),
            };
            file.write_all_at(value.as_bytes(), 0)
        };
        write().map_err(|source| Error::Write {
            path: path.clone(),
            value: value.to_owned(),
            source,
        })
    }
}
