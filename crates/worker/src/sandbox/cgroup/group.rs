//! The group of one instance.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uncia_cgroup::{clear, join_file, keyed, processes, read};

use super::files::write;
use super::{CgroupError, Controller, Counters, Layout, Version};

/// The kernel takes no smaller quota, in microseconds.
const MIN_QUOTA_US: u64 = 1_000;

/// The periods that the kernel takes, in microseconds.
pub const PERIODS_US: std::ops::RangeInclusive<u64> = 1_000..=1_000_000;

/// What an instance keeps whose CPU is scaled down.
const SCALED_DOWN_MICRO: u64 = 10_000;

/// How long freezing may take. A process in the middle of vfork or of a slow disk access holds it up.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(1);

/// Looks at the state that follow each other at once; freezing takes about 0.1 ms.
const FREEZE_SPINS: u32 = 20;

const FREEZE_POLL: Duration = Duration::from_millis(1);

/// What an instance may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub memory_bytes: u64,
    pub pids_max: u64,
    pub cpu_micro: u64,
    pub period_us: u64,
}

impl Limits {
    /// The CPU time of each period, in microseconds.
    pub fn quota_us(&self) -> u64 {
        let quota = u128::from(self.period_us) * u128::from(self.cpu_micro) / 1_000_000;
        u64::try_from(quota).unwrap_or(u64::MAX).max(MIN_QUOTA_US)
    }

    /// The CPU time of each period in ns, for those who are not bound by the kernel's smallest quota.
    pub fn quota_ns(&self) -> u64 {
        let quota = u128::from(self.period_us) * u128::from(self.cpu_micro) / 1_000;
        u64::try_from(quota).unwrap_or(u64::MAX).max(1)
    }

    pub fn period_ns(&self) -> u64 {
        self.period_us.saturating_mul(1_000)
    }

    /// The limits in keep-alive with the CPU scaled down: 0.01 vCPU, or all if it has less. Its
    /// period is at least so long (100 ms, but for shares below 0.01) that the kernel's smallest
    /// quota is not more than that share.
    pub fn scaled_down(&self) -> Self {
        let cpu_micro = self.cpu_micro.clamp(1, SCALED_DOWN_MICRO);
        let long_enough = (MIN_QUOTA_US * 1_000_000).div_ceil(cpu_micro);
        let period_us = self.period_us.max(long_enough).min(*PERIODS_US.end());
        Self { cpu_micro, period_us, ..*self }
    }
}

/// An instance's control groups.
///
/// Dropping it removes them, if nobody has before.
#[derive(Debug)]
pub struct Group {
    version: Version,
    folders: Vec<(Controller, PathBuf)>,
    removed: AtomicBool,
    stopped: Mutex<Stopped>,
}

/// Why a group is frozen: it runs when there is no reason left.
#[derive(Debug, Default)]
struct Stopped {
    /// It is paused in its keep-alive.
    paused: bool,
    /// It has used its CPU time of this period.
    held: bool,
    /// It is ending, and is never frozen again.
    released: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.removed.load(Ordering::Acquire) {
            // What cannot be removed now, the next worker sweeps.
            let _ = self.remove();
        }
    }
}

impl Group {
    /// Makes the groups and sets their limits, except the CPU quota.
    pub fn create(layout: &Layout, name: &str, limits: &Limits) -> Result<Self, CgroupError> {
        if !PERIODS_US.contains(&limits.period_us) {
            return Err(CgroupError::Period(limits.period_us));
        }
        let folders = layout.parents.iter().map(|(it, parent)| (*it, parent.join(name))).collect();
        let group = Self {
            version: layout.version,
            folders,
            removed: AtomicBool::new(false),
            stopped: Mutex::default(),
        };
        // If this fails, what was made goes again.
        group.build(limits)?;
        Ok(group)
    }

    fn build(&self, limits: &Limits) -> Result<(), CgroupError> {
        for folder in self.unique() {
            fs::create_dir(folder).map_err(|error| CgroupError::Make(folder.clone(), error))?;
        }
        if let Some(folder) = self.folder(Controller::Memory) {
            let bytes = limits.memory_bytes.to_string();
            match self.version {
                Version::V1 => {
                    write(&folder.join("memory.limit_in_bytes"), &bytes)?;
                    // Memory and swap together, so that nothing is left for swap.
                    self.write_if_there(folder, "memory.memsw.limit_in_bytes", &bytes)?;
                    self.write_if_there(folder, "memory.swappiness", "0")?;
                }
                Version::V2 => {
                    write(&folder.join("memory.max"), &bytes)?;
                    self.write_if_there(folder, "memory.swap.max", "0")?;
                }
            }
        }
        if let Some(folder) = self.folder(Controller::Pids) {
            write(&folder.join("pids.max"), &limits.pids_max.to_string())?;
        }
        Ok(())
    }

    /// Sets the CPU quota, effective at once.
    pub fn set_quota(&self, limits: &Limits) -> Result<(), CgroupError> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let (quota, period) = (limits.quota_us(), limits.period_us);
        match self.version {
            Version::V1 => {
                write(&folder.join("cpu.cfs_period_us"), &period.to_string())?;
                write(&folder.join("cpu.cfs_quota_us"), &quota.to_string())
            }
            Version::V2 => write(&folder.join("cpu.max"), &format!("{quota} {period}")),
        }
    }

    /// Whether there is a CPU quota to set.
    pub fn has_quota(&self) -> bool {
        self.folder(Controller::Cpu).is_some()
    }

    /// Whether it can be stopped, and its CPU time be read.
    pub fn can_be_held(&self) -> bool {
        [Controller::Freezer, Controller::CpuAccounting].iter().all(|it| self.folder(*it).is_some())
    }

    /// The files that a process writes "0" to, to be in these groups.
    pub fn join_files(&self) -> Vec<PathBuf> {
        self.unique().map(|folder| folder.join(join_file(self.version))).collect()
    }

    /// The file, and what to write to it, that lets a frozen group run.
    pub fn thaw_file(&self) -> Option<(PathBuf, String)> {
        let folder = self.folder(Controller::Freezer)?;
        Some(match self.version {
            Version::V1 => (folder.join("freezer.state"), "THAWED".into()),
            Version::V2 => (folder.join("cgroup.freeze"), "0".into()),
        })
    }

    /// Stops every process of the group and waits until all have stopped, until [`Self::thaw`].
    pub async fn freeze(&self) -> Result<(), CgroupError> {
        let folder = self.folder(Controller::Freezer).ok_or(CgroupError::NoFreezer)?;
        {
            let mut stopped = self.stopped();
            if stopped.released {
                return Err(CgroupError::Ending);
            }
            stopped.paused = true;
            self.write_freezer(true)?;
        }
        let deadline = tokio::time::Instant::now() + FREEZE_TIMEOUT;
        let mut looks = 0;
        while !self.is_frozen(folder)? {
            if self.stopped().released {
                return Err(CgroupError::Ending);
            }
            if tokio::time::Instant::now() > deadline {
                self.thaw()?;
                return Err(CgroupError::Unfreezable(folder.clone()));
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

    fn is_frozen(&self, folder: &Path) -> Result<bool, CgroupError> {
        Ok(match self.version {
            Version::V1 => read(&folder.join("freezer.state"))?.trim() == "FROZEN",
            Version::V2 => keyed(&read(&folder.join("cgroup.events"))?, "frozen") == Some(1_u8),
        })
    }

    /// Undoes [`Self::freeze`]. What has no CPU time left is held on until it has.
    pub fn thaw(&self) -> Result<(), CgroupError> {
        let mut stopped = self.stopped();
        stopped.paused = false;
        if stopped.held { Ok(()) } else { self.write_freezer(false) }
    }

    /// Stops the group because its CPU time is used up, until [`Self::let_go`]. Does not wait.
    pub fn hold(&self) -> Result<(), CgroupError> {
        let mut stopped = self.stopped();
        if stopped.released || stopped.held {
            return Ok(());
        }
        stopped.held = true;
        if stopped.paused { Ok(()) } else { self.write_freezer(true) }
    }

    /// Undoes [`Self::hold`]. What is paused stays so.
    pub fn let_go(&self) -> Result<(), CgroupError> {
        let mut stopped = self.stopped();
        if !std::mem::take(&mut stopped.held) || stopped.paused {
            return Ok(());
        }
        self.write_freezer(false)
    }

    /// Lets it run whatever the reasons not to, and for good: it is about to end, and what is frozen
    /// ends on no signal.
    pub fn release(&self) -> Result<(), CgroupError> {
        let mut stopped = self.stopped();
        *stopped = Stopped { paused: false, held: false, released: true };
        self.write_freezer(false)
    }

    fn stopped(&self) -> MutexGuard<'_, Stopped> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only to be called under the lock, so that the last word is the right one.
    fn write_freezer(&self, freeze: bool) -> Result<(), CgroupError> {
        let Some(folder) = self.folder(Controller::Freezer) else { return Ok(()) };
        match (self.version, freeze) {
            (Version::V1, true) => write(&folder.join("freezer.state"), "FROZEN"),
            (Version::V1, false) => write(&folder.join("freezer.state"), "THAWED"),
            (Version::V2, true) => write(&folder.join("cgroup.freeze"), "1"),
            (Version::V2, false) => write(&folder.join("cgroup.freeze"), "0"),
        }
    }

    /// The first process of the group, in the worker's numbering.
    pub fn leader(&self) -> Option<i32> {
        self.unique().find_map(|folder| processes(folder).into_iter().min())
    }

    pub fn counters(&self) -> Counters {
        Counters::open(self.version, |controller| self.folder(controller).map(PathBuf::as_path))
    }

    /// Kills what is left in the groups and removes them. Blocks until they are gone.
    pub fn remove(&self) -> io::Result<()> {
        let mut result = Ok(());
        self.removed.store(true, Ordering::Release);
        // Failing means that the group is gone.
        let _ = self.release();
        for folder in self.unique().filter(|folder| folder.exists()) {
            result = result.and(clear(folder).map_err(io::Error::other));
        }
        result
    }

    fn folder(&self, wanted: Controller) -> Option<&PathBuf> {
        self.folders.iter().find_map(|(it, folder)| (*it == wanted).then_some(folder))
    }

    /// Each folder once, though several controllers may share it.
    fn unique(&self) -> impl Iterator<Item = &PathBuf> {
        self.folders.iter().enumerate().filter_map(|(index, (_, folder))| {
            let seen = self.folders[..index].iter().any(|(_, earlier)| earlier == folder);
            (!seen).then_some(folder)
        })
    }

    /// For files that depend on how the kernel was built.
    fn write_if_there(&self, folder: &Path, file: &str, value: &str) -> Result<(), CgroupError> {
        let path = folder.join(file);
        if path.exists() || cfg!(test) { write(&path, value) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limits() -> Limits {
        Limits { memory_bytes: 134_217_728, pids_max: 64, cpu_micro: 72_357, period_us: 20_000 }
    }

    fn layout(version: Version, top: &Path) -> Layout {
        let parents = Controller::ALL
            .into_iter()
            .map(|it| {
                let folder = match version {
                    Version::V1 => top.join(it.name()),
                    Version::V2 => top.to_owned(),
                };
                fs::create_dir_all(&folder).unwrap();
                (it, folder)
            })
            .collect();
        Layout { version, parents, available: Controller::ALL.to_vec() }
    }

    #[test]
    fn version_2_is_one_folder_with_its_own_words() {
        let top = tempfile::tempdir().unwrap();
        let group = Group::create(&layout(Version::V2, top.path()), "a", &limits()).unwrap();
        let folder = top.path().join("a");
        let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(text("memory.max"), "134217728");
        assert_eq!(text("memory.swap.max"), "0");
        assert_eq!(text("pids.max"), "64");
        assert!(!folder.join("cpu.max").exists(), "initialization is not throttled");
        group.set_quota(&limits()).unwrap();
        assert_eq!(text("cpu.max"), "1447 20000");
        assert_eq!(group.join_files(), [folder.join("cgroup.procs")]);
        assert_eq!(group.thaw_file().unwrap(), (folder.join("cgroup.freeze"), "0".into()));
        // The files of a control group go with it; those of a plain folder do not, and tell what was
        // written before: what is frozen does not end.
        let error = group.remove().unwrap_err().to_string();
        assert!(error.contains("cannot remove the control group"), "{error}");
        assert_eq!(text("cgroup.freeze"), "0");
    }

    #[test]
    fn version_1_has_a_folder_for_each_controller() {
        let top = tempfile::tempdir().unwrap();
        let group = Group::create(&layout(Version::V1, top.path()), "a", &limits()).unwrap();
        group.set_quota(&limits()).unwrap();
        let text = |file: &str| fs::read_to_string(top.path().join(file)).unwrap();
        assert_eq!(text("memory/a/memory.limit_in_bytes"), "134217728");
        assert_eq!(text("memory/a/memory.memsw.limit_in_bytes"), "134217728");
        assert_eq!(text("cpu/a/cpu.cfs_period_us"), "20000");
        assert_eq!(text("cpu/a/cpu.cfs_quota_us"), "1447");
        assert_eq!(group.join_files().len(), 5);
        assert!(group.join_files().iter().all(|path| path.ends_with("a/tasks")));
    }

    #[tokio::test]
    async fn version_2_freezes_when_the_kernel_says_so() {
        let top = tempfile::tempdir().unwrap();
        let group = Group::create(&layout(Version::V2, top.path()), "a", &limits()).unwrap();
        fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        group.freeze().await.unwrap();
        assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "1");
        group.thaw().unwrap();
        assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "0");
    }

    #[tokio::test]
    async fn what_does_not_freeze_is_thawed_and_told() {
        let top = tempfile::tempdir().unwrap();
        let group = Group::create(&layout(Version::V2, top.path()), "a", &limits()).unwrap();
        fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let error = group.freeze().await.unwrap_err();
        assert!(matches!(error, CgroupError::Unfreezable(_)));
        assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "0");
    }

    #[tokio::test]
    async fn a_group_runs_when_there_is_no_reason_left_not_to() {
        let top = tempfile::tempdir().unwrap();
        let group = Group::create(&layout(Version::V2, top.path()), "a", &limits()).unwrap();
        fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        let frozen = || fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap() == "1";
        group.hold().unwrap();
        assert!(frozen());
        group.freeze().await.unwrap();
        group.let_go().unwrap();
        assert!(frozen(), "it is paused");
        group.hold().unwrap();
        group.thaw().unwrap();
        assert!(frozen(), "it is held");
        group.let_go().unwrap();
        assert!(!frozen());
        group.hold().unwrap();
        group.release().unwrap();
        group.hold().unwrap();
        assert!(!frozen(), "it is ending");
        assert!(matches!(group.freeze().await, Err(CgroupError::Ending)));
    }

    #[test]
    fn a_period_that_the_kernel_refuses_is_told_before_anything_is_made() {
        let top = tempfile::tempdir().unwrap();
        let layout = layout(Version::V2, top.path());
        let error =
            Group::create(&layout, "a", &Limits { period_us: 999, ..limits() }).unwrap_err();
        assert!(error.to_string().contains("999 us"));
        assert!(!top.path().join("a").exists());
    }

    #[test]
    fn scaled_down_is_a_hundredth_that_the_kernel_takes() {
        let scaled = |cpu_micro, period_us| {
            let limits = Limits { cpu_micro, period_us, ..limits() }.scaled_down();
            (limits.quota_us(), limits.period_us)
        };
        assert_eq!(scaled(72_357, 20_000), (1_000, 100_000));
        assert_eq!(scaled(1_000_000, 500_000), (5_000, 500_000));
        assert_eq!(scaled(5_000, 20_000), (1_000, 200_000), "it gets no more than it had");
        assert_eq!(scaled(1, 20_000), (1_000, 1_000_000), "as little as the kernel can do");
    }

    proptest! {
        #[test]
        fn the_quota_is_the_share_of_the_period(
            cpu_micro in 1_u64..=16_000_000, period_us in 1_000_u64..=1_000_000,
        ) {
            let quota = Limits { cpu_micro, period_us, ..limits() }.quota_us();
            prop_assert!(quota >= MIN_QUOTA_US);
            if quota > MIN_QUOTA_US {
                prop_assert!(quota * 1_000_000 <= period_us * cpu_micro);
                prop_assert!((quota + 1) * 1_000_000 > period_us * cpu_micro);
            }
        }
    }
}
