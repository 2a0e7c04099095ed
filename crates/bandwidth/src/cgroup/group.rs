//! A group of one's own.

use std::fs;
use std::path::{Path, PathBuf};

use uncia_cgroup::{MOUNTS, children, clear, is_left, join_file, left, own_name, read, trees};

use super::{Bandwidth, CgroupError, Counters, NS_PER_US, Place, Version};

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
        let name = own_name();
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
        for folder in children(parent)?.into_iter().filter(|folder| is_left(folder)) {
            clear(&folder).map_err(CgroupError::Left)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// A group whose maker is gone.
#[derive(Debug)]
pub struct Leftover {
    pub folder: PathBuf,
    /// What became of it; `None` if it was only to be found.
    pub cleared: Option<Result<(), uncia_cgroup::Error>>,
}

/// Finds such groups in every tree that is mounted, and removes them if asked to.
///
/// # Errors
/// It cannot be read what is mounted.
pub fn leftovers(remove: bool) -> Result<Vec<Leftover>, CgroupError> {
    let trees = trees(&read(Path::new(MOUNTS))?);
    let cleared = |folder: &Path| remove.then(|| clear(folder));
    Ok(left(&trees)
        .into_iter()
        .map(|folder| Leftover { cleared: cleared(&folder), folder })
        .collect())
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
        let place = place(Version::V1, top.path());
        let living = Group::create(&place).unwrap();
        let name = living.folder().file_name().unwrap().to_str().unwrap();
        let number = std::process::id().to_string();
        let dead = place.cpu.join(name.replacen(&number, "4194305", 1));
        let other = place.cpu.join("uncia-probe-mine");
        for folder in [&dead, &other] {
            fs::create_dir(folder).unwrap();
        }
        assert_eq!(sweep(&place).unwrap(), 1);
        assert!(living.folder().exists() && other.exists());
        assert!(!dead.exists());
    }
}
