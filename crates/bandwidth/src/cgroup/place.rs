//! Where a group can be made.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use uncia_cgroup::{MOUNTS, OWN, Tree, delegate, occupied, read, trees};

use super::{CgroupError, Version};

/// The groups that a group can be made in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub version: Version,
    /// Where the controller `cpu` is.
    pub cpu: PathBuf,
    /// Where CPU time is accounted; version 1: the tree of `cpuacct`, if there is one.
    pub accounting: Option<PathBuf>,
    /// The top of the tree of `cpu`, as it is mounted.
    pub top: PathBuf,
}

impl Place {
    /// Finds where this process may make groups: below its own, so that whatever limits it limits
    /// them too; on version 2 below the nearest group above that can pass `cpu` on, for a group
    /// with processes cannot.
    ///
    /// `unified`: version 2 even if version 1 has the controller.
    ///
    /// # Errors
    /// There is no such place.
    pub fn find(unified: bool) -> Result<Self, CgroupError> {
        let (mounts, own) = (read(Path::new(MOUNTS))?, read(Path::new(OWN))?);
        Self::among(&trees(&mounts), &own, unified)
    }

    fn among(trees: &[Tree], own: &str, unified: bool) -> Result<Self, CgroupError> {
        let classic = |name: &str| trees.iter().find(|tree| tree.has(name));
        if let (false, Some(tree)) = (unified, classic("cpu")) {
            let cpu = tree.own_folder(own);
            if !writable(&cpu) {
                return Err(CgroupError::NotWritable(cpu));
            }
            let accounting =
                classic("cpuacct").map(|tree| tree.own_folder(own)).filter(|it| writable(it));
            return Ok(Self { version: Version::V1, cpu, accounting, top: tree.mount.clone() });
        }
        let tree =
            trees.iter().find(|tree| tree.version == Version::V2).ok_or(CgroupError::None)?;
        Self::delegated(&tree.mount, &tree.own_folder(own))
    }

    /// The nearest group, from `own` upwards, whose children have the controller.
    fn delegated(top: &Path, own: &Path) -> Result<Self, CgroupError> {
        let above = || own.ancestors().take_while(|folder| folder.starts_with(top));
        let place =
            above().filter(|folder| writable(folder)).find(|folder| delegate(folder, "cpu"));
        match place {
            Some(folder) => Ok(Self {
                version: Version::V2,
                cpu: folder.to_owned(),
                accounting: Some(folder.to_owned()),
                top: top.to_owned(),
            }),
            None if above().any(writable) => {
                let has = |folder: &&Path| {
                    fs::read_to_string(folder.join("cgroup.controllers"))
                        .is_ok_and(|list| list.split_whitespace().any(|word| word == "cpu"))
                };
                match above().filter(|folder| writable(folder) && occupied(folder)).find(has) {
                    Some(folder) => Err(CgroupError::Occupied(folder.to_owned())),
                    None => Err(CgroupError::NotDelegated(own.to_owned())),
                }
            }
            None => Err(CgroupError::NotWritable(own.to_owned())),
        }
    }
}

/// Whether groups can be made in a group and processes moved into them.
fn writable(folder: &Path) -> bool {
    access(folder, AccessFlags::W_OK).is_ok()
        && access(&folder.join("cgroup.procs"), AccessFlags::W_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn group(folder: &Path, subtree: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("cgroup.procs"), "").unwrap();
        fs::write(folder.join("cgroup.subtree_control"), subtree).unwrap();
    }

    #[test]
    fn version_1_is_preferred_and_its_own_group_is_taken() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        group(&at("cpu/service/x"), "");
        group(&at("cpuacct"), "");
        let mounts = format!(
            "1 0 0:1 / {cpu} rw - cgroup cgroup rw,cpu\n2 0 0:2 / {acct} rw - cgroup cgroup \
             rw,cpuacct\n3 0 0:3 / {both} rw - cgroup2 cgroup rw\n4 0 0:4 / / rw - ext4 /dev/x rw\n",
            cpu = at("cpu").display(),
            acct = at("cpuacct").display(),
            both = at("unified").display(),
        );
        let own = "4:cpu:/service/x\n3:cpuacct:/\n1:name=systemd:/y\n0::/\n";
        let place = Place::among(&trees(&mounts), own, false).unwrap();
        assert_eq!(place.version, Version::V1);
        assert_eq!(place.cpu, at("cpu/service/x"));
        assert_eq!(place.accounting, Some(at("cpuacct")));
        let none = Place::among(&trees(&mounts), own, true).unwrap_err();
        assert!(matches!(none, CgroupError::NotWritable(_)), "{none}");
    }

    #[test]
    fn version_2_takes_the_nearest_group_that_passes_the_controller_on() {
        let top = tempfile::tempdir().unwrap();
        group(top.path(), "cpu memory");
        group(&top.path().join("a"), "memory cpu");
        group(&top.path().join("a/b"), "");
        // A group that refuses to pass it on: its file cannot be written.
        fs::remove_file(top.path().join("a/b/cgroup.subtree_control")).unwrap();
        fs::create_dir(top.path().join("a/b/cgroup.subtree_control")).unwrap();
        let place = Place::delegated(top.path(), &top.path().join("a/b")).unwrap();
        assert_eq!((place.version, place.cpu), (Version::V2, top.path().join("a")));
    }

    #[test]
    fn a_controller_that_nobody_passes_on_is_told() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("cgroup.procs"), "").unwrap();
        fs::create_dir(top.path().join("cgroup.subtree_control")).unwrap();
        let error = Place::delegated(top.path(), top.path()).unwrap_err().to_string();
        assert!(error.contains("not delegated") && error.contains("Delegate=yes"), "{error}");
    }

    #[test]
    fn a_group_whose_processes_keep_the_controller_from_its_children_is_told() {
        // As in a container whose own group is all that it sees.
        let top = tempfile::tempdir().unwrap();
        group(top.path(), "");
        fs::write(top.path().join("cgroup.procs"), "1\n").unwrap();
        fs::write(top.path().join("cgroup.type"), "domain\n").unwrap();
        let find = || Place::delegated(top.path(), top.path()).unwrap_err().to_string();
        fs::write(top.path().join("cgroup.controllers"), "memory\n").unwrap();
        assert!(find().contains("not delegated"));
        fs::write(top.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        assert!(find().contains("move them into a group below it"), "{}", find());
    }

    #[test]
    fn a_machine_without_control_groups_is_told() {
        let error = Place::among(&[], "", false).unwrap_err();
        assert!(matches!(error, CgroupError::None));
    }
}
