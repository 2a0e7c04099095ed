//! A group of one's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use uncia_cgroup::{clear, join_file};

use super::{Bandwidth, CgroupError, Counters, NS_PER_US, Place, Version};

/// What the names of these groups begin with; then the process that made it, when that started (in
/// ticks since boot, so that a number given out again is told from it), and a number.
const PREFIX: &str = "uncia-probe";

/// A control group; dropping it kills what is in it and removes it.
#[derive(Debug)]
pub struct Group {
    version: Version,
    /// Of `cpu`, and of `cpuacct` if that is another tree.
    folders: Vec<PathBuf>,
    counters: Counters,
    top: PathBuf,
    removed: bool,
}

impl Drop for Group {
    fn drop(&mut self) {
        // What cannot be removed now, the next sweep removes.
        let _ = self.clear();
    }
}

impl Group {
    /// Makes a group without a quota.
    ///
    /// # Errors
    /// It cannot be made, or would have no bandwidth control.
    pub fn create(place: &Place) -> Result<Self, CgroupError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let started = started(process::id()).unwrap_or_default();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}-{}-{started}-{number}", process::id());
        let mut folders = vec![place.cpu.join(&name)];
        let accounting = place.accounting.as_ref().map(|parent| parent.join(&name));
        if let Some(folder) = accounting.as_ref().filter(|folder| !folders.contains(folder)) {
            folders.push(folder.clone());
        }
        let group = Self {
            version: place.version,
            counters: Counters::new(place.version, &folders[0], accounting.as_deref()),
            folders,
            top: place.top.clone(),
            removed: false,
        };
        for folder in &group.folders {
            fs::create_dir(folder).map_err(|error| match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                    CgroupError::NotWritable(folder.parent().unwrap_or(folder).to_owned())
                }
                _ => CgroupError::Make(folder.clone(), error),
            })?;
        }
        let control = group.file(match group.version {
            Version::V1 => "cpu.cfs_quota_us",
            Version::V2 => "cpu.max",
        });
        // Folders of tests are plain.
        if !control.exists() && !cfg!(test) {
            return Err(CgroupError::NoBandwidthControl(control));
        }
        Ok(group)
    }

    /// The folder of the controller `cpu`.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folders[0]
    }

    /// What the kernel counts of it.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The files that a process writes "0" to, to be in this group.
    #[must_use]
    pub fn join_files(&self) -> Vec<PathBuf> {
        self.folders.iter().map(|folder| folder.join(join_file(self.version))).collect()
    }

    /// Limits it from now on.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn limit(&self, bandwidth: &Bandwidth) -> Result<(), CgroupError> {
        bandwidth.check()?;
        let [period, quota, burst] =
            [bandwidth.period, bandwidth.quota, bandwidth.burst].map(|ns| ns / NS_PER_US);
        if let Some(error) = self.above_parent(quota, period) {
            return Err(error);
        }
        match self.version {
            Version::V1 => {
                write(&self.file("cpu.cfs_period_us"), &period.to_string())?;
                write(&self.file("cpu.cfs_quota_us"), &quota.to_string())?;
                self.write_burst("cpu.cfs_burst_us", burst)
            }
            Version::V2 => {
                write(&self.file("cpu.max"), &format!("{quota} {period}"))?;
                self.write_burst("cpu.max.burst", burst)
            }
        }
    }

    fn write_burst(&self, name: &str, burst: u64) -> Result<(), CgroupError> {
        let path = self.file(name);
        if burst == 0 {
            return Ok(());
        }
        if !path.exists() && !cfg!(test) {
            return Err(CgroupError::NoBurst(path));
        }
        write(&path, &burst.to_string())
    }

    /// The error if a group above has less. Version 1 would refuse such a quota, with the EINVAL of
    /// every other mistake; version 2 would take it, and give what the group above has.
    fn above_parent(&self, quota: u64, period: u64) -> Option<CgroupError> {
        let above = |folder: &&Path| folder.starts_with(&self.top);
        for parent in self.folder().ancestors().skip(1).take_while(above) {
            let Some((limit_quota, limit_period)) = limit_of(self.version, parent) else {
                continue;
            };
            let (wanted, given) = (
                u128::from(quota) * u128::from(limit_period),
                u128::from(limit_quota) * u128::from(period),
            );
            if wanted > given {
                return Some(CgroupError::AboveParent {
                    quota_us: quota,
                    period_us: period,
                    parent: parent.to_owned(),
                    limit: format!("{limit_quota} us in {limit_period} us"),
                });
            }
        }
        None
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Kills what is in it and removes it.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn remove(mut self) -> Result<(), CgroupError> {
        self.clear()
    }

    fn clear(&mut self) -> Result<(), CgroupError> {
        if !self.removed {
            self.removed = true;
            self.folders.iter().try_for_each(|folder| clear(folder)).map_err(CgroupError::Left)?;
        }
        Ok(())
    }
}

/// Removes the groups at a place that were made by processes that are gone, killing what is in them.
///
/// Returns how many groups there were.
///
/// # Errors
/// One cannot be removed.
pub fn sweep(place: &Place) -> Result<usize, CgroupError> {
    let mut removed = 0;
    for parent in [Some(&place.cpu), place.accounting.as_ref()].into_iter().flatten() {
        let Ok(entries) = fs::read_dir(parent) else { continue };
        for folder in entries.flatten().map(|entry| entry.path()).filter(|path| is_stale(path)) {
            clear(&folder).map_err(CgroupError::Left)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Whether a folder is a group of ours whose maker is gone.
fn is_stale(folder: &Path) -> bool {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut fields = name.strip_prefix(PREFIX).unwrap_or_default().split('-').skip(1);
    let mut number = || fields.next()?.parse::<u64>().ok();
    match (number(), number(), number()) {
        (Some(pid), Some(at), Some(_)) => {
            u32::try_from(pid).ok().and_then(started).is_none_or(|now| now != at)
        }
        _ => false,
    }
}

/// When a process started, in ticks since boot: field 22 of `/proc/PID/stat`.
fn started(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may have spaces.
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The quota and period of a group in us; `None` if it has no quota.
fn limit_of(version: Version, folder: &Path) -> Option<(u64, u64)> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    match version {
        // Without a quota it says -1.
        Version::V1 => Some((
            read("cpu.cfs_quota_us")?.trim().parse().ok()?,
            read("cpu.cfs_period_us")?.trim().parse().ok()?,
        )),
        Version::V2 => {
            let text = read("cpu.max")?;
            let (quota, period) = text.trim().split_once(' ')?;
            Some((quota.parse().ok()?, period.parse().ok()?))
        }
    }
}

/// [`uncia_cgroup::write`]; in tests on plain folders it makes the file.
fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    if cfg!(test) {
        // Failing is told below.
        let _ = fs::File::create(path);
    }
    Ok(uncia_cgroup::write(path, value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(version: Version, top: &Path) -> Place {
        let accounting = match version {
            Version::V1 => top.join("cpuacct"),
            Version::V2 => top.join("cpu"),
        };
        for folder in [&top.join("cpu"), &accounting] {
            fs::create_dir_all(folder).unwrap();
        }
        let top = top.to_owned();
        Place { version, cpu: top.join("cpu"), accounting: Some(accounting), top }
    }

    fn bandwidth() -> Bandwidth {
        Bandwidth { period: 20_000_000, quota: 1_450_000, burst: 0 }
    }

    /// The files of a control group go with it; those of a plain folder do not.
    fn empty(folder: &Path) {
        fs::read_dir(folder).unwrap().for_each(|it| fs::remove_file(it.unwrap().path()).unwrap());
    }

    #[test]
    fn version_1_has_its_own_files() {
        let top = tempfile::tempdir().unwrap();
        let group = Group::create(&place(Version::V1, top.path())).unwrap();
        group.limit(&Bandwidth { burst: 1_000_000, ..bandwidth() }).unwrap();
        let text = |file: &str| fs::read_to_string(group.folder().join(file)).unwrap();
        assert_eq!(text("cpu.cfs_period_us"), "20000");
        assert_eq!(text("cpu.cfs_quota_us"), "1450");
        assert_eq!(text("cpu.cfs_burst_us"), "1000");
        assert_eq!(group.join_files().len(), 2);
        assert!(group.join_files().iter().all(|path| path.ends_with("tasks")));
        let folders = group.folders.clone();
        folders.iter().for_each(|folder| empty(folder));
        group.remove().unwrap();
        assert!(folders.iter().all(|folder| !folder.exists()));
    }

    #[test]
    fn version_2_has_one_folder() {
        let top = tempfile::tempdir().unwrap();
        let group = Group::create(&place(Version::V2, top.path())).unwrap();
        group.limit(&bandwidth()).unwrap();
        let folder = group.folder().to_owned();
        assert_eq!(fs::read_to_string(folder.join("cpu.max")).unwrap(), "1450 20000");
        assert!(!folder.join("cpu.max.burst").exists());
        assert_eq!(group.join_files(), [folder.join("cgroup.procs")]);
        empty(&folder);
        drop(group);
        assert!(!folder.exists());
    }

    #[test]
    fn a_group_above_with_less_is_named() {
        let top = tempfile::tempdir().unwrap();
        let place = place(Version::V2, top.path());
        let group = Group::create(&place).unwrap();
        fs::write(place.cpu.join("cpu.max"), "1000 20000\n").unwrap();
        let error = group.limit(&bandwidth()).unwrap_err().to_string();
        assert!(error.contains("1000 us in 20000 us") && error.contains("lower"), "{error}");
        fs::write(place.cpu.join("cpu.max"), "max 20000\n").unwrap();
        group.limit(&bandwidth()).unwrap();
    }

    #[test]
    fn only_groups_of_the_dead_are_swept() {
        let top = tempfile::tempdir().unwrap();
        let place = place(Version::V2, top.path());
        let living = Group::create(&place).unwrap();
        let own = started(process::id()).unwrap();
        let reused = place.cpu.join(format!("{PREFIX}-{}-{}-0", process::id(), own + 1));
        let dead = place.cpu.join(format!("{PREFIX}-4194305-1-0"));
        let other = place.cpu.join(format!("{PREFIX}-mine"));
        for folder in [&reused, &dead, &other] {
            fs::create_dir(folder).unwrap();
        }
        assert!(sweep(&place).unwrap() >= 2);
        assert!(living.folder().exists() && other.exists());
        assert!(!reused.exists() && !dead.exists());
    }
}
