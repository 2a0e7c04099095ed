//! Where this process may make control groups.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use uncia_cgroup::{MOUNTS, OWN, Tree, delegate, processes, remove, trees, write};

use super::{Controller, Version};

/// The folders that the worker's parent groups are made in, and which controllers work there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub version: Version,
    /// For each usable controller, the folder of the parent group. Version 2: always the same.
    pub parents: BTreeMap<Controller, PathBuf>,
    /// Controllers that the machine has, usable or not.
    pub available: Vec<Controller>,
}

impl Layout {
    pub fn has(&self, controller: Controller) -> bool {
        self.parents.contains_key(&controller)
    }

    /// The parent groups' folders, each once.
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut folders: Vec<_> = self.parents.values().cloned().collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

/// Finds the control groups and makes the parent group `name` below the one this process is in, so
/// that whatever limits the worker limits its functions too. `None` if there are none at all.
/// `unified`: version 2 even if version 1 has the controllers.
pub fn discover(name: &str, unified: bool) -> Option<Layout> {
    let mounts = fs::read_to_string(MOUNTS).ok()?;
    let own = fs::read_to_string(OWN).ok()?;
    let trees = trees(&mounts);
    let classic = |tree: &Tree| wanted(tree).next().is_some();
    if !unified && trees.iter().any(classic) {
        return Some(version_1(&trees, &own, name));
    }
    let unified = trees.iter().find(|tree| tree.version == Version::V2)?;
    Some(version_2(unified, &own, name))
}

fn version_1(trees: &[Tree], own: &str, name: &str) -> Layout {
    let mut layout =
        Layout { version: Version::V1, parents: BTreeMap::new(), available: Vec::new() };
    for tree in trees.iter().filter(|tree| tree.version == Version::V1) {
        for controller in wanted(tree) {
            if layout.available.contains(&controller) {
                continue;
            }
            layout.available.push(controller);
            let parent = tree.own_folder(own).join(name);
            if make(&parent) {
                layout.parents.insert(controller, parent);
            }
        }
    }
    layout
}

fn version_2(tree: &Tree, own: &str, name: &str) -> Layout {
    let mut layout =
        Layout { version: Version::V2, parents: BTreeMap::new(), available: Vec::new() };
    let has = |folder: &Path, file: &str, controller: Controller| {
        let list = fs::read_to_string(folder.join(file)).unwrap_or_default();
        controller.always_in_v2() || list.split_whitespace().any(|word| word == controller.name())
    };
    let top = &tree.mount;
    layout.available =
        Controller::ALL.into_iter().filter(|it| has(top, "cgroup.controllers", *it)).collect();

    // From the own group upwards, the first in which children can be made that have controllers. A
    // group with processes of its own cannot give its children controllers, unless it is the root.
    let own = tree.own_folder(own);
    let mut candidates = Vec::new();
    for folder in own.ancestors().take_while(|folder| folder.starts_with(top)) {
        let parent = folder.join(name);
        if nix::unistd::access(&folder.join("cgroup.procs"), nix::unistd::AccessFlags::W_OK)
            .is_err()
            || !make(&parent)
        {
            continue;
        }
        leave_to_children(folder, name);
        let usable: Vec<_> = Controller::ALL
            .into_iter()
            .filter(|controller| {
                controller.always_in_v2()
                    || delegate(folder, controller.name()) && delegate(&parent, controller.name())
            })
            .collect();
        candidates.push((parent, usable));
    }
    // The nearest of those with the most controllers; the others are not needed.
    let most = candidates.iter().map(|(_, usable)| usable.len()).max().unwrap_or_default();
    for (parent, usable) in candidates {
        if layout.parents.is_empty() && usable.len() == most {
            layout.parents = usable.into_iter().map(|it| (it, parent.clone())).collect();
        } else {
            let _ = remove(&parent);
        }
    }
    layout
}

/// If this process is alone in its group (as a service is), moves it into a child, so that the group
/// can give controllers to its children. Nobody else's processes are moved.
fn leave_to_children(folder: &Path, name: &str) {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    if processes(folder) != [own] || delegate(folder, Controller::Memory.name()) {
        return;
    }
    let leaf = folder.join(format!("{name}-worker"));
    if make(&leaf) && write(&leaf.join("cgroup.procs"), "0").is_err() {
        let _ = remove(&leaf);
    }
}

fn make(folder: &Path) -> bool {
    folder.is_dir() && nix::unistd::access(folder, nix::unistd::AccessFlags::W_OK).is_ok()
        || fs::create_dir(folder).is_ok()
}

fn wanted(tree: &Tree) -> impl Iterator<Item = Controller> + '_ {
    Controller::ALL.into_iter().filter(|it| tree.has(it.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_makes_a_parent_in_each_tree() {
        let folder = tempfile::tempdir().unwrap();
        let tree = |name: &str, controllers: &[&str]| {
            fs::create_dir(folder.path().join(name)).unwrap();
            Tree {
                version: Version::V1,
                controllers: controllers.iter().map(|it| (*it).to_owned()).collect(),
                root: "/".into(),
                mount: folder.path().join(name),
            }
        };
        let trees = [tree("both", &["cpu", "cpuacct"]), tree("memory", &["memory"])];
        let layout = version_1(&trees, "2:cpu,cpuacct:/\n1:memory:/\n", "uncia-x");
        assert_eq!(layout.parents[&Controller::Cpu], folder.path().join("both/uncia-x"));
        assert_eq!(layout.parents[&Controller::CpuAccounting], folder.path().join("both/uncia-x"));
        assert_eq!(layout.folders().len(), 2);
        assert!(!layout.has(Controller::Freezer));
        assert!(folder.path().join("memory/uncia-x").is_dir());
    }

    fn unified(top: &Path, controllers: &str) -> Tree {
        fs::write(top.join("cgroup.controllers"), controllers).unwrap();
        fs::write(top.join("cgroup.procs"), "1\n2\n").unwrap();
        fs::write(top.join("cgroup.subtree_control"), "").unwrap();
        Tree { version: Version::V2, controllers: vec![], root: "/".into(), mount: top.to_owned() }
    }

    #[test]
    fn version_2_switches_controllers_on() {
        let folder = tempfile::tempdir().unwrap();
        let tree = unified(folder.path(), "cpu io memory pids\n");
        let layout = version_2(&tree, "0::/\n", "uncia-x");
        assert_eq!(layout.available, Controller::ALL);
        assert!(Controller::ALL.into_iter().all(|it| layout.has(it)));
        assert_eq!(layout.folders(), [folder.path().join("uncia-x")]);
        let on = fs::read_to_string(folder.path().join("uncia-x/cgroup.subtree_control")).unwrap();
        assert!(on.starts_with('+'));
    }

    #[test]
    fn version_2_without_controllers_still_counts_cpu_and_freezes() {
        let folder = tempfile::tempdir().unwrap();
        let tree = unified(folder.path(), "\n");
        let layout = version_2(&tree, "0::/\n", "uncia-x");
        assert_eq!(layout.available, [Controller::CpuAccounting, Controller::Freezer]);
    }
}
