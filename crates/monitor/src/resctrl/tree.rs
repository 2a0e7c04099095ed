//! The file system: what it can do, which groups there are, and whose they are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uncia_cgroup::{is_left_with, own_name_with};

use super::kernel::Kernel;
use super::limits::{Bandwidth, Cache, Domain, hexadecimal, values};
use super::meter::EVENTS;
use super::{Limited, Mounted, Wanted};

/// What names of groups made here begin with; then who made it, as of control groups.
const PREFIX: &str = "uncia-monitor-";
const TYPE: &str = "resctrl";
const CUSTOMARY: &str = "/sys/fs/resctrl";
const GROUPS: &str = "mon_groups";
/// Folders of the root that are no groups.
const NO_GROUPS: [&str; 3] = ["info", GROUPS, "mon_data"];

/// The mounted file system.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    pub kernel: Arc<dyn Kernel>,
    pub root: PathBuf,
}

/// A group that was made here; removed when dropped.
#[derive(Debug)]
pub(crate) struct Made {
    kernel: Arc<dyn Kernel>,
    pub folder: PathBuf,
}

impl Made {
    /// Removes it, and says if that fails.
    pub(crate) fn remove(self) -> io::Result<()> {
        self.kernel.remove(&self.folder)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Whoever removed it already did what is meant. What cannot be removed has a name that tells whose it is.
        let _ = self.kernel.remove(&self.folder);
    }
}

/// A group whose maker is gone.
#[derive(Debug)]
pub struct Left {
    /// Its folder.
    pub folder: PathBuf,
    /// What became of it; `None` if it was only looked for.
    pub removed: Option<io::Result<()>>,
}

impl Tree {
    /// The file system at a root, or where it is mounted; the error says what is missing.
    pub(crate) fn find(root: Option<&Path>) -> Result<Self, String> {
        let kernel: Arc<dyn Kernel> = Arc::new(Mounted);
        if let Some(root) = root {
            let tree = Self { kernel, root: root.to_owned() };
            return if root.join("info").is_dir() {
                Ok(tree)
            } else {
                Err(format!("no resctrl is mounted at {}: there is no info in it", root.display()))
            };
        }
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        mounted(&text("/proc/self/mountinfo"))
            .map(|root| Self { kernel, root })
            .ok_or_else(|| why_not(&text("/proc/filesystems"), &text("/proc/cpuinfo")))
    }

    /// The events that are counted and have rows; none without monitoring.
    pub(crate) fn features(&self) -> BTreeSet<String> {
        let text = self.read("info/L3_MON/mon_features").unwrap_or_default();
        let lines = text.lines().map(|line| line.trim().to_owned());
        lines.filter(|name| EVENTS.iter().any(|(event, ..)| event == name)).collect()
    }

    /// What the cache can be limited to, if it can.
    pub(crate) fn cache(&self) -> Option<Cache> {
        let is_there = |name: &&str| self.read(&format!("info/{name}/cbm_mask")).is_some();
        let mut resources: Vec<_> = ["L3"].into_iter().filter(is_there).collect();
        if resources.is_empty() {
            resources = ["L3DATA", "L3CODE"].into_iter().filter(is_there).collect();
        }
        let first = *resources.first()?;
        let cbm_mask = hexadecimal(&self.read(&format!("info/{first}/cbm_mask"))?)?;
        let min_cbm_bits = self.number(&format!("info/{first}/min_cbm_bits"))?;
        let is_sparse = self.number(&format!("info/{first}/sparse_masks")) == Some(1);
        let (schemata, sizes) = (self.read("schemata")?, self.read("size").unwrap_or_default());
        let usage = self.read(&format!("info/{first}/bit_usage")).unwrap_or_default();
        let usage = values(&format!("{first}:{usage}"), first).map(owned).unwrap_or_default();
        let sizes = values(&sizes, first).map(owned).unwrap_or_default();
        let domain = |(id, mask): &(&str, &str)| {
            let ways = u64::from(hexadecimal(mask)?.count_ones());
            // The file mirrors the masks, in bytes.
            let bytes: Option<u64> = sizes.get(*id).and_then(|it| it.parse().ok());
            let way_bytes = bytes.and_then(|it| it.checked_div(ways));
            let taken = usage.get(*id).map(|it| taken(it)).unwrap_or_default();
            Some(((*id).to_owned(), Domain { way_bytes, taken }))
        };
        let domains = values(&schemata, first)?.iter().map(domain).collect::<Option<_>>()?;
        let resources = resources.into_iter().map(str::to_owned).collect();
        Some(Cache { resources, cbm_mask, min_cbm_bits, is_sparse, domains })
    }

    /// What the bandwidth can be limited to, if it can, in per cent.
    fn bandwidth(&self) -> Result<Option<Bandwidth>, String> {
        let numbers = (self.number("info/MB/min_bandwidth"), self.number("info/MB/bandwidth_gran"));
        let (Some(min), Some(step)) = numbers else { return Ok(None) };
        let schemata = self.read("schemata").unwrap_or_default();
        let Some(domains) = values(&schemata, "MB") else { return Ok(None) };
        // Mounted with mba_MBps, and on AMD's processors, it is in MB/s and in eighths of GB/s.
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if is_in_mbps(&mountinfo, &self.root)
            || domains.iter().any(|(_, value)| value.parse().is_ok_and(|it: u64| it > 100))
        {
            return Err(
                "the memory's bandwidth is not limited in per cent here (mounted with mba_MBps, or a processor of AMD)"
                    .into(),
            );
        }
        let domains = domains.into_iter().map(|(id, _)| id.to_owned()).collect();
        Ok(Some(Bandwidth { min, step: step.max(1), domains }))
    }

    /// Makes a group for which limits hold; the error says why there is none, and nothing is left of it.
    pub(crate) fn limit(&self, wanted: &Wanted) -> Result<(Made, Limited), String> {
        let bandwidth = if wanted.bandwidth_percent.is_some() { self.bandwidth()? } else { None };
        let limited = wanted.fit(self.cache().as_ref(), bandwidth.as_ref())?;
        let closids = self.kernel.folders(&self.root.join("info")).unwrap_or_default();
        let closids =
            closids.iter().filter_map(|it| self.number(&format!("info/{it}/num_closids")));
        let used = self.limiting().len();
        if let Some(most) = closids.min().filter(|most| used >= *most as usize) {
            return Err(format!(
                "all {most} groups with limits that the processor has are in use (num_closids), the root's among them: remove one"
            ));
        }
        let made = self.make(self.root.clone())?;
        let file = made.folder.join("schemata");
        // It begins with all of the machine: what limits the root there would not hold for what is put into it.
        let kept = self.kept(&limited.schemata, &self.kernel.read(&file).unwrap_or_default());
        if !kept.is_empty() {
            self.kernel.write(&file, &kept).map_err(|error| {
                format!(
                    "the other limits of the root's group, {kept:?}, cannot be kept: {}",
                    self.reason(&error)
                )
            })?;
        }
        self.kernel.write(&file, &limited.schemata).map_err(|error| {
            format!("the limits {:?} are refused: {}", limited.schemata, self.reason(&error))
        })?;
        let set = self.kernel.read(&file).unwrap_or_default();
        let wanted = format!("{kept}{}", limited.schemata);
        if !is_set(&set, &wanted) {
            return Err(format!("the limits {wanted:?} were set, and {set:?} holds instead"));
        }
        Ok((made, limited))
    }

    /// Lines of the root's `schemata` that are of no resource that is limited, and differ from those of a new group.
    fn kept(&self, limited: &str, new: &str) -> String {
        let of = |line: &str| line.trim().split_once(':').map(|(name, _)| name.to_owned());
        let limited: BTreeSet<_> = limited.lines().filter_map(of).collect();
        let root = self.read("schemata").unwrap_or_default();
        let mut kept = String::new();
        for name in root.lines().filter_map(of).filter(|name| !limited.contains(name)) {
            let Some(pairs) = values(&root, &name) else { continue };
            let pairs: Vec<_> = pairs.iter().map(|(id, value)| format!("{id}={value}")).collect();
            let line = format!("{name}:{}\n", pairs.join(";"));
            if !is_set(new, &line) {
                kept += &line;
            }
        }
        kept
    }

    /// Makes a group that counts alone, of tasks of a group with limits.
    pub(crate) fn make_counting(&self, of: &Path) -> Result<Made, String> {
        self.make(of.join(GROUPS))
    }

    fn make(&self, parent: PathBuf) -> Result<Made, String> {
        let folder = parent.join(own_name_with(PREFIX));
        match self.kernel.make(&folder) {
            Ok(()) => Ok(Made { kernel: Arc::clone(&self.kernel), folder }),
            Err(error) => Err(format!(
                "no group can be made in {}: {}",
                parent.display(),
                self.reason(&error)
            )),
        }
    }

    /// Folders of the groups with limits, the root's first: all tasks are in one of them.
    pub(crate) fn limiting(&self) -> Vec<PathBuf> {
        let names = self.kernel.folders(&self.root).unwrap_or_default();
        let groups = names.iter().filter(|name| !NO_GROUPS.contains(&name.as_str()));
        std::iter::once(self.root.clone()).chain(groups.map(|name| self.root.join(name))).collect()
    }

    /// Folders of the groups that count in one with limits.
    pub(crate) fn counting(&self, limiting: &Path) -> Vec<PathBuf> {
        let below = limiting.join(GROUPS);
        let names = self.kernel.folders(&below).unwrap_or_default();
        names.into_iter().map(|name| below.join(name)).collect()
    }

    /// Tasks of groups that were not made here.
    pub(crate) fn foreign(&self) -> BTreeSet<i32> {
        let mut tasks = BTreeSet::new();
        for folder in self.limiting() {
            if folder != self.root && !is_own(&folder) {
                tasks.extend(self.tasks(&folder));
                continue;
            }
            for folder in self.counting(&folder).iter().filter(|it| !is_own(it)) {
                tasks.extend(self.tasks(folder));
            }
        }
        tasks
    }

    /// The tasks of a group; none of one that is gone.
    pub(crate) fn tasks(&self, folder: &Path) -> BTreeSet<i32> {
        let text = self.kernel.read(&folder.join("tasks")).unwrap_or_default();
        text.split_ascii_whitespace().filter_map(|it| it.parse().ok()).collect()
    }

    /// Puts a task into a group; whether it is there then. One that has ended is not.
    pub(crate) fn put(&self, task: i32, folder: &Path) -> Result<bool, String> {
        match self.kernel.write(&folder.join("tasks"), &format!("{task}\n")) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            Err(error) => Err(self.reason(&error)),
        }
    }

    /// Finds groups of this file system whose makers are gone, and removes them if asked to.
    pub(crate) fn left(&self, remove: bool) -> Vec<Left> {
        let mut left = Vec::new();
        for folder in self.limiting() {
            if folder != self.root && is_left(&folder) {
                // What is below it goes with it.
                left.push(folder);
            } else {
                left.extend(self.counting(&folder).into_iter().filter(|it| is_left(it)));
            }
        }
        let removed = |folder: &Path| remove.then(|| self.kernel.remove(folder));
        left.into_iter().map(|folder| Left { removed: removed(&folder), folder }).collect()
    }

    /// Why something was refused: the kernel says more than its error.
    fn reason(&self, error: &io::Error) -> String {
        let said = self.read("info/last_cmd_status").unwrap_or_default();
        match said.trim() {
            "" | "ok" => error.to_string(),
            said => format!("{error} ({said})"),
        }
    }

    fn read(&self, path: &str) -> Option<String> {
        self.kernel.read(&self.root.join(path)).ok()
    }

    fn number(&self, path: &str) -> Option<u32> {
        self.read(path)?.trim().parse().ok()
    }
}

/// Finds groups whose makers are gone where the file system is mounted, and removes them if asked to.
#[must_use]
pub fn leftovers(remove: bool) -> Vec<Left> {
    Tree::find(None).map(|tree| tree.left(remove)).unwrap_or_default()
}

fn owned(pairs: Vec<(&str, &str)>) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(id, value)| (id.to_owned(), value.to_owned())).collect()
}

/// Ways that are exclusive (E) or locked (P); the highest comes first.
fn taken(usage: &str) -> u64 {
    usage
        .bytes()
        .rev()
        .take(64)
        .enumerate()
        .fold(0, |mask, (bit, letter)| mask | (u64::from(matches!(letter, b'E' | b'P')) << bit))
}

/// Whether a file has the values of lines that were written to it.
fn is_set(set: &str, written: &str) -> bool {
    written.lines().all(|line| {
        let Some((resource, _)) = line.split_once(':') else { return false };
        // By the domains' numbers, which the kernel sorts and texts do not.
        let as_numbers = |text: &str| {
            let number = |(id, value): (&str, &str)| Some((id.parse().ok()?, hexadecimal(value)?));
            let pairs = values(text, resource)?.into_iter().map(number);
            pairs.collect::<Option<BTreeMap<u32, u64>>>()
        };
        as_numbers(set).is_some_and(|it| as_numbers(line) == Some(it))
    })
}

fn name(folder: &Path) -> &str {
    folder.file_name().and_then(|it| it.to_str()).unwrap_or_default()
}

/// Whether this process has made it.
fn is_own(folder: &Path) -> bool {
    let own = own_name_with(PREFIX);
    let maker = |name: &str| name.rsplit_once('-').map(|(maker, _)| maker.to_owned());
    maker(name(folder)) == maker(&own)
}

fn is_left(folder: &Path) -> bool {
    is_left_with(name(folder), PREFIX)
}

/// Where it is mounted.
fn mounted(mountinfo: &str) -> Option<PathBuf> {
    mounts(mountinfo).next().map(|(folder, _)| folder.into())
}

/// Whether it is mounted there with limits of the bandwidth in MB/s.
fn is_in_mbps(mountinfo: &str, root: &Path) -> bool {
    let options = mounts(mountinfo).find(|(folder, _)| Path::new(folder) == root);
    options.is_some_and(|(_, options)| options.split(',').any(|it| it == "mba_MBps"))
}

/// Where file systems of this type are mounted, and their options.
fn mounts(mountinfo: &str) -> impl Iterator<Item = (&str, &str)> {
    mountinfo.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let is_it = kind.split(' ').next() == Some(TYPE);
        is_it.then_some((mount.split(' ').nth(4)?, kind.split(' ').next_back()?))
    })
}

/// Why it is not mounted.
fn why_not(filesystems: &str, cpuinfo: &str) -> String {
    if filesystems.lines().any(|line| line.split_whitespace().last() == Some(TYPE)) {
        return format!("resctrl is not mounted: mount -t resctrl resctrl {CUSTOMARY}");
    }
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let able: Vec<_> = flags
        .split_whitespace()
        .filter(|it| ["cqm_llc", "cqm_mbm_total", "cqm_mbm_local", "cat_l3", "mba"].contains(it))
        .collect();
    if able.is_empty() {
        return "the kernel has no resctrl, and the processor shows neither monitoring of its cache nor limits of it \
                (no cqm_llc, cat_l3 or mba in /proc/cpuinfo)"
            .to_owned();
    }
    format!(
        "the kernel has no resctrl, though the processor could do it ({}): it takes CONFIG_X86_CPU_RESCTRL",
        able.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told() {
        let registered = "nodev\tsysfs\nnodev\tresctrl\n\text4\n";
        assert!(why_not(registered, "").contains("not mounted: mount -t resctrl"));
        assert!(
            why_not("nodev\tsysfs\n", "flags\t\t: fpu vme\n")
                .contains("the processor shows neither")
        );
        let sentence = why_not("", "flags\t\t: fpu cqm_llc mba\n");
        assert!(sentence.contains("(cqm_llc, mba): it takes CONFIG_X86_CPU_RESCTRL"), "{sentence}");
        let mounts = "22 1 0:5 / /proc rw - proc proc rw\n30 1 0:9 / /mnt/r rw shared:1 - resctrl resctrl rw\n";
        assert_eq!(mounted(mounts), Some("/mnt/r".into()));
        assert!(!is_in_mbps(mounts, Path::new("/mnt/r")));
        let in_mbps = mounts.replace("resctrl resctrl rw", "resctrl resctrl rw,cdp,mba_MBps");
        assert!(is_in_mbps(&in_mbps, Path::new("/mnt/r")) && !is_in_mbps(&in_mbps, Path::new("/")));
        assert_eq!(mounted("22 1 0:5 / /resctrl rw - proc resctrl rw\nx\n"), None);
        let folder = tempfile::tempdir().unwrap();
        let sentence = Tree::find(Some(folder.path())).unwrap_err();
        assert!(sentence.contains("no resctrl is mounted at"), "{sentence}");
    }

    #[test]
    fn ways_of_others_are_taken_and_masks_compared_as_numbers() {
        assert_eq!(taken("PPSSSSXXHE0"), 0b110_0000_0010);
        assert!(is_set("  L3:0=007ff;1=3\n MB:0= 50\n", "L3:0=7ff;1=3\nMB:0=50\n"));
        assert!(!is_set("L3:0=7ff;1=7ff\n", "L3:0=7ff;1=3\n"));
        assert!(!is_set("", "L3:0=7ff\n"));
        assert!(is_set("L3:0=3;1=3;2=3;10=3\n", "L3:0=3;1=3;10=3;2=3\n"));
        assert!(!is_set("L3:0=3;1=3\n", "L3:0=3\n"));
    }
}
