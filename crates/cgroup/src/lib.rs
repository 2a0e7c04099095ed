//! Control groups: where they are mounted, in which one this process is, their control files, and
//! how one is emptied and removed.
//!
//! Version 1 of the kernel's interface has a tree for each controller (or for several), version 2
//! one tree for all. Whoever makes groups makes them below its own, so that whatever limits it
//! limits them too.

mod files;
mod groups;
mod owner;
mod throttling;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use files::{join_file, keyed, pread, read, write};
pub use groups::{children, clear, clear_tree, processes, remove, thaw, thaw_tree};
pub use owner::{is_left, left, own_name};
pub use throttling::Throttling;

/// Where the kernel lists what is mounted.
pub const MOUNTS: &str = "/proc/self/mountinfo";
/// Where it lists the groups of this process.
pub const OWN: &str = "/proc/self/cgroup";

/// The version of the kernel's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// Why something could not be done with a group.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot write {value:?} to {path}: {source}")]
    Write { path: PathBuf, value: String, source: io::Error },
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    #[error("processes in the control group {0} do not end")]
    Alive(PathBuf),
    #[error("cannot remove the control group {0}: {1}")]
    Remove(PathBuf, #[source] io::Error),
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

/// A mounted tree of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    pub version: Version,
    /// Version 1: its controllers, among the mount's other options.
    pub controllers: Vec<String>,
    /// The group that is at the mount point; not "/" inside a container without a namespace.
    pub root: PathBuf,
    pub mount: PathBuf,
}

impl Tree {
    /// Whether it is of version 1 and has the controller.
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        self.version == Version::V1 && self.controllers.iter().any(|name| name == controller)
    }

    /// The folder of the group that a process is in, by the text of [`OWN`], or the top of what can
    /// be seen.
    #[must_use]
    pub fn own_folder(&self, own: &str) -> PathBuf {
        let path = own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let here = match self.version {
                Version::V1 => {
                    controllers.split(',').any(|name| !name.is_empty() && self.has(name))
                }
                Version::V2 => controllers.is_empty(),
            };
            here.then(|| PathBuf::from(path))
        });
        path.as_deref()
            .and_then(|path| path.strip_prefix(&self.root).ok())
            .map(|below| self.mount.join(below))
            .filter(|folder| folder.is_dir())
            .unwrap_or_else(|| self.mount.clone())
    }
}

/// The trees in the text of [`MOUNTS`]: "id parent dev root mountpoint options [tags] - type source
/// super".
#[must_use]
pub fn trees(mounts: &str) -> Vec<Tree> {
    mounts
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut kind = kind.split(' ');
            let version = match kind.next()? {
                "cgroup" => Version::V1,
                "cgroup2" => Version::V2,
                _ => return None,
            };
            let controllers = kind.nth(1)?.split(',').map(str::to_owned).collect();
            let mut fields = mount.split(' ').skip(3);
            let (root, mount) = (fields.next()?, fields.next()?);
            Some(Tree { version, controllers, root: root.into(), mount: mount.into() })
        })
        .collect()
}

/// Whether children of a group of version 2 have the controller, after switching it on if need be,
/// and can hold processes: not if the group is [`occupied`].
#[must_use]
pub fn delegate(folder: &Path, controller: &str) -> bool {
    let path = folder.join("cgroup.subtree_control");
    let on = |text: String| text.split_whitespace().any(|word| word == controller);
    !occupied(folder)
        && (fs::read_to_string(&path).is_ok_and(on)
            || fs::write(&path, format!("+{controller}")).is_ok())
}

/// Whether a group of version 2 cannot pass controllers on to groups with processes: it has
/// processes of its own and is not the root, or it holds threads.
///
/// The kernel says EBUSY only for controllers of whole processes, such as `memory`. It does switch
/// `cpu` and `pids` on, but that makes the group one of threads, whose children take no process
/// (EOPNOTSUPP; `cgroup_vet_subtree_control_enable`, kernel/cgroup/cgroup.c).
#[must_use]
pub fn occupied(folder: &Path) -> bool {
    // The root has no type.
    let Ok(kind) = fs::read_to_string(folder.join("cgroup.type")) else { return false };
    let processes = fs::read_to_string(folder.join("cgroup.procs"));
    kind.trim() != "domain" || processes.is_ok_and(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
22 1 0:20 / /proc rw,relatime - proc proc rw
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
33 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
";

    #[test]
    fn mounts_are_read() {
        let trees = trees(TEXT);
        assert_eq!(trees.len(), 4);
        assert!(trees[0].has("cpu") && trees[0].has("cpuacct") && !trees[0].has("memory"));
        assert_eq!(trees[1].root, Path::new("/docker/abc"));
        assert_eq!(trees[3].version, Version::V2);
        assert!(!trees[3].has("rw"), "version 2 has options, but no controllers here");
    }

    #[test]
    fn the_own_group_is_relative_to_what_is_mounted() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("inner")).unwrap();
        let tree = Tree {
            version: Version::V1,
            controllers: vec!["memory".into()],
            root: "/docker/abc".into(),
            mount: folder.path().to_owned(),
        };
        let own = "5:cpu:/elsewhere\n4:memory:/docker/abc/inner\n0::/\n";
        assert_eq!(tree.own_folder(own), folder.path().join("inner"));
        // Not below the mounted group, or gone: the mounted group itself.
        assert_eq!(tree.own_folder("4:memory:/other\n"), folder.path());
        assert_eq!(tree.own_folder("4:memory:/docker/abc/gone\n"), folder.path());
        let unified = Tree { version: Version::V2, controllers: vec![], ..tree };
        assert_eq!(unified.own_folder("0::/docker/abc/inner\n"), folder.path().join("inner"));
        assert_eq!(unified.own_folder("0::/elsewhere\n"), folder.path());
    }

    #[test]
    fn a_controller_is_passed_on_or_not() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!delegate(&folder.path().join("absent"), "cpu"));
        let file = folder.path().join("cgroup.subtree_control");
        fs::write(&file, "memory cpu\n").unwrap();
        assert!(delegate(folder.path(), "cpu"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "memory cpu\n", "it was on already");
        assert!(delegate(folder.path(), "pids"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "+pids");
    }

    #[test]
    fn a_group_with_processes_passes_nothing_on_unless_it_is_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        write("cgroup.subtree_control", "cpu\n");
        write("cgroup.procs", "0\n17\n");
        assert!(delegate(folder.path(), "cpu"), "the root");
        write("cgroup.type", "domain\n");
        assert!(!delegate(folder.path(), "cpu") && !delegate(folder.path(), "pids"));
        let on = fs::read_to_string(folder.path().join("cgroup.subtree_control")).unwrap();
        assert_eq!(on, "cpu\n", "nothing was switched on");
        write("cgroup.procs", "");
        assert!(delegate(folder.path(), "cpu"));
        write("cgroup.type", "domain threaded\n");
        assert!(occupied(folder.path()));
    }
}
