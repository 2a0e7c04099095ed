//! One group: made, limited, frozen (`freezer`), counted, removed.

mod freezer;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use self::freezer::Stopped;
use crate::bandwidth::NS_PER_US;
use crate::files::{write, write_if_present};
use crate::interface::Interface;
use crate::tree::{kill_all, processes, remove};
use crate::{
    Bandwidth, Controller, Counters, CpuShare, Error, Layout, Limits, Mounts, PERIODS_US, Version,
};

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

    /// Sets the CPU quota, effective at once; without the controller, there is none.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_quota(&self, limits: &Limits) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let Bandwidth { period, quota, .. } = limits.bandwidth();
        self.interface().write_quota(folder, quota / NS_PER_US, period / NS_PER_US)
    }

    /// Sets quota, period and burst, which must be what the group gets in fact.
    ///
    /// # Errors
    /// The kernel would refuse it or give less, or has no such limit.
    pub fn set_bandwidth(&self, bandwidth: &Bandwidth) -> Result<(), Error> {
        bandwidth.check()?;
        let folder = self.folder(Controller::Cpu).ok_or(Error::NotMounted("cpu"))?;
        let interface = self.interface();
        let quota_file = folder.join(interface.quota_file());
        if !quota_file.exists() {
            return Err(Error::NoBandwidthControl(quota_file));
        }
        let [period, quota, burst] =
            [bandwidth.period, bandwidth.quota, bandwidth.burst].map(|ns| ns / NS_PER_US);
        let burst_file = folder.join(interface.burst_file());
        if burst > 0 && !burst_file.exists() {
            return Err(Error::NoBurst(burst_file));
        }
        self.check_above(folder, quota, period)?;
        interface.write_quota(folder, quota, period)?;
        if burst > 0 { write(&burst_file, &burst.to_string()) } else { Ok(()) }
    }

    /// Gives it one of `parts` equal parts of what a [`CpuShare`] gets when there is not enough CPU time
    /// for all. A share has the greatest weight that there is, so that it has thousands of parts.
    /// Without the controller, nothing is divided.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_cpu_part(&self, parts: u64) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let (file, weights) = self.interface().weights();
        let weight = (weights.end() / parts.max(1)).max(*weights.start());
        write_if_present(&folder.join(file), &weight.to_string())
    }

    /// Gives it this weight among the groups beside it, in shares of version 1, of which a group has 1024 at
    /// first: at least the least that there is. Without the controller, nothing is divided.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_shares(&self, shares: u64) -> Result<(), Error> {
        const DEFAULT: u64 = 1_024;
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let (file, weights) = self.interface().weights();
        let weight = shares.saturating_mul(self.interface().default_weight()) / DEFAULT;
        write_if_present(
            &folder.join(file),
            &weight.clamp(*weights.start(), *weights.end()).to_string(),
        )
    }

    /// Gives it this weight among the groups beside it, in micro-vCPU: at least the least that there is.
    /// Without the controller, nothing is divided.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_weight(&self, micro: u64) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let (file, weights) = self.interface().weights();
        // What a whole CPU has, as the kernel's documentation has it.
        let whole = self.interface().default_weight();
        let weight = micro.saturating_mul(whole) / 1_000_000;
        let weight = weight.clamp(*weights.start(), *weights.end());
        write(&folder.join(file), &weight.to_string())
    }

    /// Has it run only where nobody else wants to (`cpu.idle`, which Linux has since 5.15), or not any
    /// more; where the kernel has no such class, it has the least weight.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_idle(&self, idle: bool) -> Result<(), Error> {
        let Some(folder) = self.folder(Controller::Cpu) else { return Ok(()) };
        let file = folder.join("cpu.idle");
        if file.exists() {
            return write(&file, if idle { "1" } else { "0" });
        }
        if idle { self.set_weight(0) } else { Ok(()) }
    }

    /// Has it run on these CPUs alone.
    ///
    /// # Errors
    /// There is no controller for it, or the kernel refuses them.
    pub fn set_cpus(&self, cpus: &[usize]) -> Result<(), Error> {
        let folder = self.folder(Controller::CpuSet).ok_or(Error::NotMounted("cpuset"))?;
        let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
        write(&folder.join("cpuset.cpus"), &list.join(","))
    }

    /// Checks that no group above has less. Version 1 would refuse such a quota, with the EINVAL of
    /// every other mistake; version 2 would take it, and give what the group above has.
    fn check_above(&self, folder: &Path, quota_us: u64, period_us: u64) -> Result<(), Error> {
        for parent in folder.ancestors().skip(1) {
            let Some((quota, period)) = self.interface().quota(parent) else { continue };
            let wanted = u128::from(quota_us) * u128::from(period);
            if wanted > u128::from(quota) * u128::from(period_us) {
                return Err(Error::AboveParent {
                    quota_us,
                    period_us,
                    parent: parent.to_owned(),
                    limit: format!("{quota} us in {period} us"),
                });
            }
        }
        Ok(())
    }

    /// Whether there is a CPU quota to set.
    #[must_use]
    pub fn has_quota(&self) -> bool {
        self.folder(Controller::Cpu).is_some()
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
mod tests {
    use super::*;
    use crate::own_name;

    const FILES: [&str; 18] = [
        "cpu.shares",
        "cpu.weight",
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.swappiness",
        "memory.kmem.tcp.limit_in_bytes",
        "memory.max",
        "memory.swap.max",
        "pids.max",
        "cpu.cfs_period_us",
        "cpu.cfs_quota_us",
        "cpu.cfs_burst_us",
        "cpu.max",
        "cpu.max.burst",
        "freezer.state",
        "cgroup.freeze",
        "cgroup.events",
        "cgroup.procs",
    ];

    fn limits() -> Limits {
        Limits { memory_bytes: 134_217_728, pids_max: 64, cpu_micro: 72_357, period_us: 20_000 }
    }

    fn bandwidth() -> Bandwidth {
        Bandwidth { period: 20_000_000, quota: 1_450_000, burst: 0 }
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
        let available = Controller::ALL.to_vec();
        Layout { version, parents, unified: None, available, obstacle: None }
    }

    /// A group of plain folders, with the files that the kernel would have made, but empty.
    fn group(version: Version, top: &Path) -> Group {
        let group = Group::unlimited(&layout(version, top), "a").unwrap();
        for folder in group.unique() {
            for file in FILES {
                fs::write(folder.join(file), "").unwrap();
            }
        }
        group
    }

    #[test]
    fn version_2_is_one_folder_with_its_own_words() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V2, top.path());
        let folder = top.path().join("a");
        assert_eq!(group.folder_to_begin_in(), Some(folder.clone()));
        let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        group.limit(&limits()).unwrap();
        assert_eq!(text("memory.max"), "134217728");
        assert_eq!(text("memory.swap.max"), "0");
        assert_eq!(text("pids.max"), "64");
        assert_eq!(text("cpu.max"), "", "initialization is not throttled");
        group.set_quota(&limits()).unwrap();
        assert_eq!(text("cpu.max"), "1447 20000");
        assert_eq!(group.join_files(), [folder.join("cgroup.procs")]);
        assert_eq!(group.thaw_file().unwrap(), (folder.join("cgroup.freeze"), "0".into()));
        // The files of a control group go with it; those of a plain folder do not, and show what was
        // written before: what is frozen does not end.
        let error = group.remove().unwrap_err().to_string();
        assert!(error.contains("cannot remove the control group"), "{error}");
        assert_eq!(text("cgroup.freeze"), "0");
    }

    #[test]
    fn version_1_has_a_folder_for_each_controller() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V1, top.path());
        group.limit(&limits()).unwrap();
        group.set_quota(&limits()).unwrap();
        let text = |file: &str| fs::read_to_string(top.path().join(file)).unwrap();
        assert_eq!(text("memory/a/memory.limit_in_bytes"), "134217728");
        assert_eq!(text("memory/a/memory.memsw.limit_in_bytes"), "134217728");
        assert_eq!(text("memory/a/memory.kmem.tcp.limit_in_bytes"), "33554432");
        assert_eq!(text("cpu/a/cpu.cfs_period_us"), "20000");
        assert_eq!(text("cpu/a/cpu.cfs_quota_us"), "1447");
        assert_eq!(group.join_files().len(), 5);
        assert!(group.join_files().iter().all(|path| path.ends_with("a/tasks")));
    }

    #[test]
    fn version_1_may_have_a_folder_of_version_2_beside() {
        let top = tempfile::tempdir().unwrap();
        let unified = top.path().join("unified");
        fs::create_dir(&unified).unwrap();
        let layout = layout(Version::V1, top.path());
        let layout = Layout { unified: Some(unified.clone()), ..layout };
        let group = Group::unlimited(&layout, "a").unwrap();
        assert_eq!(group.folder_to_begin_in(), Some(unified.join("a")));
        let files = group.join_files();
        assert_eq!(files.last(), Some(&unified.join("a/cgroup.procs")));
        assert!(files[..files.len() - 1].iter().all(|file| file.ends_with("a/tasks")));
        group.remove().unwrap();
        assert!(!unified.join("a").exists());
        // What was made before it goes with it.
        fs::create_dir(unified.join("b")).unwrap();
        Group::unlimited(&layout, "b").unwrap_err();
        assert!(!top.path().join("cpu/b").exists());
    }

    #[test]
    fn a_bandwidth_is_what_the_group_gets() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V1, top.path());
        group.set_bandwidth(&Bandwidth { burst: 1_000_000, ..bandwidth() }).unwrap();
        let folder = top.path().join("cpu/a");
        let text = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(
            (text("cpu.cfs_period_us"), text("cpu.cfs_quota_us")),
            ("20000".into(), "1450".into())
        );
        assert_eq!(text("cpu.cfs_burst_us"), "1000");
        fs::remove_file(folder.join("cpu.cfs_burst_us")).unwrap();
        group.set_bandwidth(&bandwidth()).unwrap();
        let burst = group.set_bandwidth(&Bandwidth { burst: 1_000_000, ..bandwidth() });
        assert!(matches!(burst, Err(Error::NoBurst(_))));
        fs::remove_file(folder.join("cpu.cfs_quota_us")).unwrap();
        let none = group.set_bandwidth(&bandwidth());
        assert!(matches!(none, Err(Error::NoBandwidthControl(_))));
    }

    #[test]
    fn a_group_may_have_a_part_of_what_others_have() {
        for (version, file, [whole, thousandth, least]) in [
            (Version::V1, "cpu/a/cpu.shares", ["262144", "262", "2"]),
            (Version::V2, "a/cpu.weight", ["10000", "10", "1"]),
        ] {
            let top = tempfile::tempdir().unwrap();
            let group = group(version, top.path());
            let weights = [(1000, thousandth), (1, whole), (0, whole), (u64::MAX, least)];
            for (parts, weight) in weights {
                group.set_cpu_part(parts).unwrap();
                assert_eq!(fs::read_to_string(top.path().join(file)).unwrap(), weight);
            }
        }
    }

    #[test]
    fn a_group_above_with_less_is_named() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V2, top.path());
        fs::write(top.path().join("cpu.max"), "1000 20000\n").unwrap();
        let error = group.set_bandwidth(&bandwidth()).unwrap_err().to_string();
        assert!(error.contains("1000 us in 20000 us") && error.contains("lower"), "{error}");
        fs::write(top.path().join("cpu.max"), "max 20000\n").unwrap();
        group.set_bandwidth(&bandwidth()).unwrap();
        assert_eq!(fs::read_to_string(top.path().join("a/cpu.max")).unwrap(), "1450 20000");
    }

    #[tokio::test]
    async fn version_2_freezes_when_the_kernel_says_so() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V2, top.path());
        fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        group.freeze().await.unwrap();
        assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "1");
        group.thaw().unwrap();
        assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "0");
    }

    #[tokio::test]
    async fn what_does_not_freeze_is_thawed_and_named() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V2, top.path());
        fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        let error = group.freeze().await.unwrap_err();
        assert!(matches!(error, Error::Unfreezable(_)));
        assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "0");
    }

    #[tokio::test]
    async fn what_could_not_be_looked_at_is_thawed() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V2, top.path());
        // As without a descriptor for it.
        let _ = fs::remove_file(top.path().join("a/cgroup.events"));
        assert!(group.freeze().await.is_err());
        assert_eq!(fs::read_to_string(top.path().join("a/cgroup.freeze")).unwrap(), "0");
    }

    #[tokio::test]
    async fn thawing_opens_nothing() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V2, top.path());
        fs::write(top.path().join("a/cgroup.events"), "populated 1\nfrozen 1\n").unwrap();
        group.freeze().await.unwrap();
        let (path, kept) = (top.path().join("a/cgroup.freeze"), top.path().join("kept"));
        fs::rename(&path, &kept).unwrap();
        group.thaw().unwrap();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "0");
    }

    #[tokio::test]
    async fn a_group_runs_when_there_is_no_reason_left_not_to() {
        let top = tempfile::tempdir().unwrap();
        let group = group(Version::V2, top.path());
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
        assert!(matches!(group.freeze().await, Err(Error::Ending)));
    }

    #[test]
    fn a_period_that_the_kernel_refuses_is_refused_before_anything_is_made() {
        let top = tempfile::tempdir().unwrap();
        let layout = layout(Version::V2, top.path());
        let limits = Limits { period_us: 999, ..limits() };
        let error = Group::create(&layout, "a", &limits).unwrap_err();
        assert!(error.to_string().contains("999 us"));
        assert!(!top.path().join("a").exists());
    }

    #[test]
    fn a_group_of_the_same_name_is_not_taken_for_ones_own() {
        let top = tempfile::tempdir().unwrap();
        let layout = layout(Version::V1, top.path());
        let other = top.path().join("freezer/a");
        fs::create_dir(&other).unwrap();
        let error = Group::unlimited(&layout, "a").unwrap_err();
        assert!(matches!(error, Error::Make(folder, _) if folder == other));
        assert!(other.exists() && !top.path().join("cpu/a").exists());
    }

    #[tokio::test]
    async fn a_real_group_is_limited_frozen_and_removed() {
        let layout = Mounts::read().unwrap().discover(&own_name(), &Controller::ALL, false);
        let Some(layout) = layout.filter(|it| Controller::ALL.iter().all(|one| it.has(*one)))
        else {
            eprintln!("not run: no control groups that this process may make");
            return;
        };
        let group = Group::create(&layout, "a", &limits()).unwrap();
        group.set_quota(&limits()).unwrap();
        group.set_bandwidth(&bandwidth()).unwrap();
        group.set_cpu_part(1).unwrap();
        group.set_cpu_part(u64::MAX).unwrap();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        for file in group.join_files() {
            write(&file, &child.id().to_string()).unwrap();
        }
        assert_eq!(group.leader(), i32::try_from(child.id()).ok());
        group.freeze().await.unwrap();
        let readings = group.counters().read_all();
        assert!(readings.cpu.is_some() && readings.throttling.is_some(), "{readings:?}");
        assert!(readings.memory.is_some() && readings.oom_kills == Some(0), "{readings:?}");
        assert_eq!(group.counters().threads(), Some(1));
        let folders: Vec<_> = group.unique().map(Path::to_owned).collect();
        drop(group);
        assert!(folders.iter().all(|folder| !folder.exists()));
        child.wait().unwrap();
        layout.remove().unwrap();
        assert!(layout.folders().iter().all(|folder| !folder.exists()));
    }
}
