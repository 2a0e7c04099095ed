//! Where this process may make control groups.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::files::words;
use crate::mounts::Tree;
use crate::{Controller, Error, Mounts, Version, clear_tree, delegation};

/// The parent groups of a worker or a probe, and which controllers work there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Which of the kernel's interfaces they are of.
    pub version: Version,
    /// For each usable controller, the folder of the parent group. Version 2: always the same.
    pub parents: BTreeMap<Controller, PathBuf>,
    /// Beside version 1's controllers, the folder of a parent group in the tree of version 2: see
    /// [`Layout::beside`].
    pub unified: Option<PathBuf>,
    /// Controllers that the machine has, usable or not.
    pub available: Vec<Controller>,
    /// Why some of those asked for cannot be used.
    pub obstacle: Option<Obstacle>,
}

/// Why controllers cannot be used, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum Obstacle {
    #[error(
        "{0} may not be written: run as root, in a container with /sys/fs/cgroup writable, or by \
         `systemd-run --user --scope -p Delegate=yes`"
    )]
    NotWritable(PathBuf),
    #[error(
        "the control group {0} is not delegated to this process: run by `systemd-run --scope -p \
         Delegate=yes` (as a user, `systemd-run --user --scope -p Delegate=yes`), or in a container \
         with a control-group namespace of its own"
    )]
    NotDelegated(PathBuf),
    #[error(
        "{0} has processes of its own, so groups below it get no controller: run by \
         `systemd-run --user --scope -p Delegate=yes`, or move them into a group below it \
         (mkdir {0}/rest, then write each number in {0}/cgroup.procs to {0}/rest/cgroup.procs)"
    )]
    Occupied(PathBuf),
    #[error(
        "the group above passes no {controllers} on to {group}: run by `systemd-run --user --scope \
         -p Delegate=yes`, or have root write it (such as +cpu) to the file cgroup.subtree_control \
         of the group above"
    )]
    NoController { group: PathBuf, controllers: String },
    #[error("the kernel refuses to pass controllers on: {0}")]
    Refused(String),
}

impl Layout {
    /// Whether groups with this controller can be made.
    #[must_use]
    pub fn has(&self, controller: Controller) -> bool {
        self.parents.contains_key(&controller)
    }

    /// Checks that groups with this controller can be made.
    ///
    /// # Errors
    /// They cannot, and why.
    pub fn require(&self, controller: Controller) -> Result<(), Error> {
        match &self.obstacle {
            _ if self.has(controller) => Ok(()),
            Some(obstacle) => Err(obstacle.clone().into()),
            None => Err(Error::NotMounted(controller.name())),
        }
    }

    /// The parent groups' folders, each once.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<_> = self.parents.values().chain(&self.unified).cloned().collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// Has groups be in the tree of version 2, too, where version 1 has the controllers and that tree is
    /// mounted without any: only there has a group pressure (PSI), performance events, and a number that
    /// programs in the kernel see. It limits nothing.
    #[must_use]
    pub fn beside(mut self, name: &str) -> Self {
        if self.version == Version::V1 && !self.parents.is_empty() {
            self.unified = Mounts::read().ok().and_then(|mounts| mounts.unified(name));
        }
        self
    }

    /// Kills what is in the parent groups and removes them, and undoes what was done to have them.
    ///
    /// # Errors
    /// One cannot be removed.
    pub fn remove(&self) -> Result<(), Error> {
        self.folders().iter().try_for_each(|folder| clear_tree(folder))
    }
}

/// Finds the control groups and makes the parent group `name` below the one this process is in, so
/// that whatever limits this process limits those groups too. `None` if there are none at all.
/// `unified`: version 2 even if version 1 has the controllers.
#[must_use]
pub fn discover(name: &str, unified: bool) -> Option<Layout> {
    Mounts::read().ok()?.discover(name, &Controller::ALL, unified)
}

/// The same where groups are to be pinned to CPUs ([`Group::set_cpus`](crate::Group::set_cpus)).
#[must_use]
pub fn discover_to_pin(name: &str, unified: bool) -> Option<Layout> {
    let wanted: Vec<_> = Controller::ALL.into_iter().chain([Controller::CpuSet]).collect();
    Mounts::read().ok()?.discover(name, &wanted, unified)
}

impl Mounts {
    /// [`discover`] for some of the controllers.
    #[must_use]
    pub fn discover(&self, name: &str, wanted: &[Controller], unified: bool) -> Option<Layout> {
        let is_classic = |tree: &Tree| wanted.iter().any(|it| tree.has(it.name()));
        if !unified && self.trees.iter().any(is_classic) {
            return Some(self.version_1(name, wanted));
        }
        let tree = self.trees.iter().find(|tree| tree.version == Version::V2)?;
        Some(self.version_2(tree, name, wanted))
    }

    fn version_1(&self, name: &str, wanted: &[Controller]) -> Layout {
        let mut layout = Layout::new(Version::V1);
        for &controller in wanted {
            let Some(tree) = self.trees.iter().find(|tree| tree.has(controller.name())) else {
                continue;
            };
            layout.available.push(controller);
            let own = self.own_folder(tree).unwrap_or_else(|| tree.mount.clone());
            let parent = own.join(name);
            if make(&parent) && (controller != Controller::CpuSet || inherit_cpus(&own, &parent)) {
                layout.parents.insert(controller, parent);
            } else {
                layout.obstacle.get_or_insert(Obstacle::NotWritable(own));
            }
        }
        layout
    }

    /// Makes a parent group in the tree of version 2; `None` where there is none that anybody may be in.
    fn unified(&self, name: &str) -> Option<PathBuf> {
        let tree = self.trees.iter().find(|tree| tree.version == Version::V2)?;
        let folder = self.own_folder(tree).unwrap_or_else(|| tree.mount.clone());
        // With controllers, whoever is in a group keeps those below it from having them.
        let passes_on = !words(&folder.join("cgroup.subtree_control")).is_empty();
        let parent = folder.join(name);
        (!passes_on && make(&parent)).then_some(parent)
    }

    fn version_2(&self, tree: &Tree, name: &str, wanted: &[Controller]) -> Layout {
        let mut layout = Layout::new(Version::V2);
        let passed_to = |folder: &Path| {
            let names = words(&folder.join("cgroup.controllers"));
            move |it: &Controller| {
                it.is_always_in_v2() || names.iter().any(|name| name == it.name())
            }
        };
        layout.available = wanted.iter().copied().filter(passed_to(&tree.mount)).collect();
        let base = match delegation::base(self, tree) {
            Ok(base) => base,
            Err(obstacle) => return Layout { obstacle: Some(obstacle), ..layout },
        };
        let parent = base.join(name);
        if !make(&parent) {
            return Layout { obstacle: Some(Obstacle::NotWritable(base)), ..layout };
        }
        let (mut usable, missing): (Vec<_>, Vec<_>) =
            wanted.iter().copied().partition(passed_to(&base));
        let names = |list: &[Controller]| -> Vec<_> {
            list.iter().filter(|it| !it.is_always_in_v2()).map(|it| it.name()).collect()
        };
        if let Err(obstacle) = delegation::switch_on(&base, &parent, &names(&usable)) {
            usable.retain(|it| it.is_always_in_v2());
            layout.obstacle = Some(obstacle);
        } else if !missing.is_empty() {
            let controllers = names(&missing).join(", ");
            layout.obstacle = Some(Obstacle::NoController { group: base, controllers });
        }
        layout.parents = usable.into_iter().map(|it| (it, parent.clone())).collect();
        layout
    }
}

impl Layout {
    fn new(version: Version) -> Self {
        let parents = BTreeMap::new();
        Self { version, parents, unified: None, available: Vec::new(), obstacle: None }
    }
}

/// Gives a group of version 1 the CPUs and memory nodes of the one above, and has those below it inherit
/// them: without them, no process can be in it.
fn inherit_cpus(above: &Path, parent: &Path) -> bool {
    let copy = |file: &str| fs::write(parent.join(file), fs::read(above.join(file))?);
    let inherits = || fs::write(parent.join("cgroup.clone_children"), "1");
    copy("cpuset.cpus").and_then(|()| copy("cpuset.mems")).and_then(|()| inherits()).is_ok()
}

/// Makes a parent group; one that an earlier process left is fine.
fn make(folder: &Path) -> bool {
    folder.is_dir() && access(folder, AccessFlags::W_OK).is_ok() || fs::create_dir(folder).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group as the kernel makes it, but in a plain folder.
    fn group(folder: &Path, controllers: &str) {
        fs::create_dir_all(folder).unwrap();
        for (file, text) in [
            ("cgroup.procs", ""),
            ("cgroup.subtree_control", ""),
            ("cgroup.controllers", controllers),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
    }

    #[test]
    fn version_1_makes_a_parent_in_each_tree() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for folder in ["both/service", "memory", "unified"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        let mountinfo = format!(
            "1 0 0:1 / {} rw - cgroup cgroup rw,cpu,cpuacct\n2 0 0:2 / {} rw - cgroup cgroup \
             rw,memory\n3 0 0:3 / {} rw - cgroup2 cgroup rw\n4 0 0:4 / / rw - ext4 /dev/x rw\n",
            at("both").display(),
            at("memory").display(),
            at("unified").display(),
        );
        let own = "2:cpu,cpuacct:/service\n1:memory:/\n0::/\n";
        let mounts = Mounts::parse(&mountinfo, own, true);
        let layout = mounts.discover("uncia-x", &Controller::ALL, false).unwrap();
        assert_eq!(layout.version, Version::V1);
        assert_eq!(layout.parents[&Controller::Cpu], at("both/service/uncia-x"));
        assert_eq!(layout.parents[&Controller::CpuAccounting], at("both/service/uncia-x"));
        assert_eq!(layout.folders(), [at("both/service/uncia-x"), at("memory/uncia-x")]);
        assert!(!at("unified/uncia-x").exists(), "nobody has asked for it");
        let unified = mounts.unified("uncia-x");
        assert_eq!(unified, Some(at("unified/uncia-x")));
        fs::remove_dir(at("unified/uncia-x")).unwrap();
        fs::write(at("unified/cgroup.subtree_control"), "memory\n").unwrap();
        assert_eq!(mounts.unified("uncia-x"), None);
        assert!(!layout.has(Controller::Freezer));
        layout.require(Controller::Memory).unwrap();
        let missing = layout.require(Controller::Freezer).unwrap_err().to_string();
        assert!(missing.contains("`freezer`"), "{missing}");
        layout.remove().unwrap();
        assert!(!at("memory/uncia-x").exists());
    }

    #[test]
    fn version_1_that_cannot_be_written_is_named() {
        let mountinfo = "1 0 0:1 / /proc rw - cgroup cgroup rw,cpu\n";
        let mounts = Mounts::parse(mountinfo, "1:cpu:/\n", true);
        let layout = mounts.discover("uncia-x", &Controller::ALL, false).unwrap();
        assert_eq!(layout.available, [Controller::Cpu]);
        let error = layout.require(Controller::Cpu).unwrap_err().to_string();
        assert!(error.starts_with("/proc may not be written"), "{error}");
    }

    fn unified(top: &Path, own: &str) -> Layout {
        let line = format!("1 0 0:1 / {} rw - cgroup2 cgroup rw", top.display());
        let mounts = Mounts::parse(&line, format!("0::{own}\n"), true);
        mounts.discover("uncia-x", &Controller::ALL, false).unwrap()
    }

    #[test]
    fn version_2_switches_controllers_on_in_the_own_group() {
        let top = tempfile::tempdir().unwrap();
        group(top.path(), "cpu io memory pids\n");
        // Plain folders get no files when they are made.
        group(&top.path().join("uncia-x"), "cpu io memory pids\n");
        let layout = unified(top.path(), "/");
        assert_eq!(layout.available, Controller::ALL);
        assert_eq!(layout.obstacle, None);
        assert!(Controller::ALL.into_iter().all(|it| layout.has(it)));
        assert_eq!(layout.folders(), [top.path().join("uncia-x")]);
        let record = top.path().join("uncia-x/switched-on+cpu+memory+pids");
        assert!(record.is_dir(), "what was switched on is recorded");
    }

    #[test]
    fn version_2_never_touches_a_group_above() {
        let top = tempfile::tempdir().unwrap();
        let own = top.path().join("system.slice/x.service");
        group(&own, "cpu\n");
        group(&top.path().join("system.slice"), "cpu memory\n");
        group(top.path(), "cpu memory pids\n");
        let layout = unified(top.path(), "/system.slice/x.service");
        assert_eq!(layout.obstacle, Some(Obstacle::NotDelegated(own.clone())));
        assert!(layout.parents.is_empty() && !layout.has(Controller::Cpu));
        assert_eq!(layout.available, Controller::ALL);
        for folder in own.ancestors().take(3) {
            assert!(words(&folder.join("cgroup.subtree_control")).is_empty());
            assert!(!folder.join("uncia-x").exists());
        }
    }

    #[test]
    fn version_2_without_controllers_still_counts_cpu_and_freezes() {
        let top = tempfile::tempdir().unwrap();
        group(top.path(), "\n");
        let layout = unified(top.path(), "/");
        let always = [Controller::CpuAccounting, Controller::Freezer];
        assert_eq!(layout.available, always);
        assert!(always.into_iter().all(|it| layout.has(it)));
        let error = layout.require(Controller::Memory).unwrap_err().to_string();
        assert!(error.contains("cpu, memory, pids") && error.contains("Delegate=yes"), "{error}");
    }
}
