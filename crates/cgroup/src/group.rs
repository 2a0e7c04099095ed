//! One group: made, limited (`cpu`), frozen (`freezer`), counted, removed.

mod cpu;
mod freezer;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::freezer::Stopped;
use crate::files::write;
use crate::interface::Interface;
use crate::tree::{kill_all, processes, remove};
use crate::{Controller, Counters, CpuShare, Error, Layout, Limits, Mounts, PERIODS_US, Version};

/// A control group: on version 1, one folder in the tree of each controller.
///
/// Dropping it kills what is in it and removes it, if nobody has before.
#[derive(Debug)]
pub struct Group {
    version: Version,
    folders: Vec<(Controller, PathBuf)>,
    /// Its folder in the tree of version 2, if it has one beside those of version 1.
    unified: Option<PathBuf>,
    removed: AtomicBool,
    stopped: Mutex<Stopped>,
    /// The share that it is a member of, until it is removed.
    pub(crate) share: Mutex<Option<Arc<CpuShare>>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.removed.load(Ordering::Acquire) {
            // What cannot be removed now, the next sweep removes.
            let _ = self.remove();
        }
    }
}

impl Group {
    /// Makes a group and sets its limits, except the CPU quota.
    ///
    /// # Errors
    /// It cannot be made, or the kernel refuses a limit.
    pub fn create(layout: &Layout, name: &str, limits: &Limits) -> Result<Self, Error> {
        if !PERIODS_US.contains(&limits.period_us) {
            return Err(Error::Period(limits.period_us));
        }
        let group = Self::unlimited(layout, name)?;
        group.limit(limits)?;
        Ok(group)
    }

    /// Makes a group without limits.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn unlimited(layout: &Layout, name: &str) -> Result<Self, Error> {
        let mut group = Self {
            version: layout.version,
            folders: Vec::new(),
            unified: None,
            removed: AtomicBool::new(false),
            stopped: Mutex::default(),
            share: Mutex::default(),
        };
        for (controller, parent) in &layout.parents {
            let folder = parent.join(name);
            if group.folders.iter().all(|(_, made)| *made != folder) {
                // If this fails, what was made before goes again.
                fs::create_dir(&folder).map_err(|error| Error::Make(folder.clone(), error))?;
            }
            group.folders.push((*controller, folder));
        }
        if let Some(parent) = &layout.unified {
            let folder = parent.join(name);
            fs::create_dir(&folder).map_err(|error| Error::Make(folder.clone(), error))?;
            group.unified = Some(folder);
        }
        Ok(group)
    }

    /// Limits memory and processes, before there are any.
    fn limit(&self, limits: &Limits) -> Result<(), Error> {
        if let Some(folder) = self.folder(Controller::Memory) {
            self.interface().write_memory_limit(folder, limits.memory_bytes)?;
        }
        if let Some(folder) = self.folder(Controller::Pids) {
            write(&folder.join("pids.max"), &limits.pids_max.to_string())?;
        }
        Ok(())
    }

    /// Whether it can be stopped, and its CPU time be read.
    #[must_use]
    pub fn can_be_held(&self) -> bool {
        [Controller::Freezer, Controller::CpuAccounting].iter().all(|it| self.folder(*it).is_some())
    }

    /// The files that a process writes "0" to, to be in this group. If there is a
    /// [folder to begin in](Self::folder_to_begin_in), that one's is the last.
    #[must_use]
    pub fn join_files(&self) -> Vec<PathBuf> {
        let file = |folder: &Path| {
            let is_unified = self.unified.as_deref() == Some(folder);
            let version = if is_unified { Version::V2 } else { self.version };
            folder.join(version.interface().join_file())
        };
        self.unique().map(file).collect()
    }

    /// The folder of version 2 in which a process can begin (`CLONE_INTO_CGROUP`), and then need not join it; None
    /// where there is none.
    #[must_use]
    pub fn folder_to_begin_in(&self) -> Option<PathBuf> {
        self.events_folder().map(Path::to_owned)
    }

    /// The folder in the tree of version 2, in which the kernel has pressure and events of the group.
    #[must_use]
    pub fn events_folder(&self) -> Option<&Path> {
        match self.version {
            Version::V1 => self.unified.as_deref(),
            Version::V2 => self.unique().next(),
        }
    }

    /// Its path in the trees, as programs that watch groups name it: in the tree of version 2, if it is in that;
    /// else in that of the CPU's account. `None` if it cannot be told.
    #[must_use]
    pub fn path(&self, mounts: &Mounts) -> Option<String> {
        let folder = self.events_folder().or_else(|| self.folder(Controller::CpuAccounting))?;
        mounts.path_of(folder)
    }

    /// The file with the counts of throttling, for a process that reads it itself.
    #[must_use]
    pub fn stat_file(&self) -> Option<PathBuf> {
        Some(self.folder(Controller::Cpu)?.join("cpu.stat"))
    }

    /// The first process of the group, in this process's numbering.
    #[must_use]
    pub fn leader(&self) -> Option<i32> {
        self.unique().find_map(|folder| processes(folder).into_iter().filter(|pid| *pid > 0).min())
    }

    /// Opens its counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::open(self.version, |controller| self.folder(controller))
    }

    /// Kills what is left in the group and removes it. Blocks until it is gone.
    ///
    /// # Errors
    /// Processes do not end, or a folder cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        let mut result = Ok(());
        self.removed.store(true, Ordering::Release);
        // Failing means that the group is gone.
        let _ = self.release();
        for folder in self.unique().filter(|folder| folder.exists()) {
            result = result.and(kill_all(folder).and_then(|()| remove(folder)));
        }
        // Only now: the share goes with its last member.
        drop(self.share.lock().unwrap_or_else(PoisonError::into_inner).take());
        Ok(result?)
    }

    /// Leaves it to the next sweep.
    pub(crate) fn leave(&self) {
        self.removed.store(true, Ordering::Release);
    }

    /// The group's folder in the tree of a controller, if it has that.
    #[must_use]
    pub fn folder(&self, wanted: Controller) -> Option<&Path> {
        self.folders.iter().find_map(|(it, folder)| (*it == wanted).then_some(folder.as_path()))
    }

    /// Each folder once, though several controllers may share it.
    pub(crate) fn unique(&self) -> impl Iterator<Item = &Path> {
        let classic = self.folders.iter().enumerate().filter_map(|(index, (_, folder))| {
            let seen = self.folders[..index].iter().any(|(_, earlier)| earlier == folder);
            (!seen).then_some(folder.as_path())
        });
        classic.chain(self.unified.as_deref())
    }

    fn interface(&self) -> &'static dyn Interface {
        self.version.interface()
    }
}

#[cfg(test)]
mod tests;
