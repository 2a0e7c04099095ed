//! Version 2: controllers for groups below this process's own, and back to how it was.
//!
//! A group passes a controller on to its children only if it is switched on in its
//! `cgroup.subtree_control`, and most only if the group has no processes of its own. Both change a
//! group that this process did not make, so they are done only to a group that is delegated to it,
//! are recorded before, and are undone when the groups below are cleared: by this process, or after
//! a crash by whoever clears what it left ([`crate::clear_tree`]).
//!
//! The record is the name of an empty group among those made, since nothing else lasts exactly as
//! long as they do.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::files::{words, write};
use crate::mounts::{Mounts, Tree};
use crate::tree::{children, processes, remove};
use crate::{Error, Obstacle, Version};

/// What the name of a record begins with; then, each after a plus sign, the controllers.
const RECORD: &str = "switched-on";

/// What the name of the group ends with to which this process moves out of its own; before that, it
/// is the name of the group that it made room for.
const WORKER_SUFFIX: &str = "-worker";

/// What the names of Uncia's groups begin with.
const PREFIX: &str = "uncia-";

/// How often processes are looked for that were started while others were moved.
const MAX_MOVE_ROUNDS: usize = 16;

/// What systemd marks a delegated group with (`Delegate=yes`): as the user's manager, as root's.
const MARKS: [&str; 2] = ["user.delegate", "trusted.delegate"];

/// Finds the group to make groups in: this process's own, which must be delegated to it.
pub(crate) fn base(mounts: &Mounts, tree: &Tree) -> Result<PathBuf, Obstacle> {
    let own = mounts.own_folder(tree);
    let own = own.ok_or_else(|| Obstacle::NotDelegated(tree.mount.clone()))?;
    // Uncia moved whoever started this process, and has not moved it back.
    let base = if is_worker_group(&own) { own.parent().unwrap_or(&own).to_owned() } else { own };
    let writable = |file: &str| access(&base.join(file), AccessFlags::W_OK).is_ok();
    if !["", "cgroup.procs", "cgroup.subtree_control"].into_iter().all(writable) {
        return Err(Obstacle::NotWritable(base));
    }
    // Write access given to an ordinary user is what the kernel calls delegation.
    if mounts.root && !is_delegated_to_root(&tree.mount, &base) {
        return Err(Obstacle::NotDelegated(base));
    }
    Ok(base)
}

/// Root may write everywhere. Its own are the top of what it sees, all of what it sees if that is a
/// container's part of the tree (only the root of the whole tree has no type), and what systemd says
/// is delegated.
fn is_delegated_to_root(top: &Path, folder: &Path) -> bool {
    let is_marked = |folder: &Path| {
        let mut value = [0_u8; 8];
        MARKS.iter().any(|mark| {
            rustix::fs::getxattr(folder, *mark, &mut value).is_ok_and(|len| &value[..len] == b"1")
        })
    };
    folder == top
        || top.join("cgroup.type").exists()
        || folder.ancestors().take_while(|above| above.starts_with(top)).any(is_marked)
}

/// Has the children of `parent` get these controllers, by switching them on in `base`, which it is
/// in, and moving this process and those that started it out of `base` if they are in the way.
pub(crate) fn switch_on(base: &Path, parent: &Path, controllers: &[&str]) -> Result<(), Obstacle> {
    let on = words(&base.join("cgroup.subtree_control"));
    let off: Vec<_> =
        controllers.iter().copied().filter(|name| !on.iter().any(|it| it == name)).collect();
    let tried = (|| {
        // What a sibling has switched on is switched off by the last that is cleared.
        let siblings: Vec<_> = children(base)?.iter().flat_map(|it| recorded(it)).collect();
        let shared = |name: &str| siblings.iter().any(|it| it == name);
        let record: Vec<_> =
            controllers.iter().copied().filter(|name| off.contains(name) || shared(name)).collect();
        if !record.is_empty() {
            let path = parent.join(format!("{RECORD}+{}", record.join("+")));
            make(&path).map_err(|error| Error::Make(path, error))?;
        }
        if !off.is_empty() {
            vacate(base, parent)?;
        }
        off.iter().try_for_each(|name| switch(base, '+', name))?;
        controllers.iter().try_for_each(|name| switch(parent, '+', name))
    })();
    tried.map_err(|error| {
        // The error at hand is what matters.
        let records = records(parent);
        let _ = undo(parent, &records);
        match error {
            Error::Obstacle(obstacle) => obstacle,
            other => Obstacle::Refused(other.to_string()),
        }
    })
}

/// Moves this process and those that started it out of a group that could pass nothing on with them.
///
/// The kernel says EBUSY only for controllers of whole processes, such as `memory`. It does switch
/// `cpu` and `pids` on in a group with processes, but that makes the group one of threads, whose
/// children take no process (EOPNOTSUPP; `cgroup_vet_subtree_control_enable`, kernel/cgroup/cgroup.c).
fn vacate(base: &Path, parent: &Path) -> Result<(), Error> {
    // The root of the whole tree, the only group without a type, passes on what it likes.
    let Ok(kind) = fs::read_to_string(base.join("cgroup.type")) else { return Ok(()) };
    let own_and_ancestors = own_and_ancestors();
    let is_ours = || {
        let procs = processes(base);
        kind.trim() == "domain" && procs.iter().all(|pid| own_and_ancestors.contains(pid))
    };
    if !is_ours() {
        return Err(Obstacle::Occupied(base.to_owned()).into());
    }
    if processes(base).is_empty() {
        return Ok(());
    }
    let leaf = worker_group_of(parent);
    make(&leaf).map_err(|error| Error::Make(leaf.clone(), error))?;
    move_all(base, &leaf)?;
    if is_ours() && processes(base).is_empty() {
        Ok(())
    } else {
        Err(Obstacle::Occupied(base.to_owned()).into())
    }
}

/// Undoes [`switch_on`], of which `records` are the records. Controllers that others use by now stay
/// switched on.
pub(crate) fn undo(parent: &Path, records: &[PathBuf]) -> Result<(), Error> {
    let Some(base) = parent.parent() else { return Ok(()) };
    for name in records.iter().flat_map(|record| controllers_of(record)) {
        for folder in [parent, base] {
            match switch(folder, '-', &name) {
                Err(Error::Write { source, .. }) if source.raw_os_error() == Some(libc::EBUSY) => {}
                other => other?,
            }
        }
    }
    // Also those whose groups are gone, but could not be emptied at the time.
    let is_left = |leaf: &PathBuf| {
        let owner = leaf.to_str().and_then(|path| path.strip_suffix(WORKER_SUFFIX));
        is_worker_group(leaf)
            && owner.is_some_and(|owner| owner == parent || !Path::new(owner).exists())
    };
    for leaf in children(base)?.iter().filter(|leaf| is_left(leaf)) {
        // Not while others have controllers switched on in `base`; the last of them does it.
        if move_all(leaf, base).is_ok() {
            let _ = fs::remove_dir(leaf);
        }
    }
    records.iter().try_for_each(|record| remove(record))
}

/// Whether a group is a record of what was switched on.
pub(crate) fn is_record(folder: &Path) -> bool {
    name(folder).strip_prefix(RECORD).is_some_and(|rest| rest.starts_with('+'))
}

fn records(parent: &Path) -> Vec<PathBuf> {
    let children = children(parent).unwrap_or_default();
    children.into_iter().filter(|child| is_record(child)).collect()
}

/// What was switched on in the group above for the sake of this one.
fn recorded(parent: &Path) -> Vec<String> {
    records(parent).iter().flat_map(|record| controllers_of(record)).collect()
}

fn controllers_of(record: &Path) -> Vec<String> {
    name(record).split('+').skip(1).map(str::to_owned).collect()
}

fn is_worker_group(folder: &Path) -> bool {
    name(folder).starts_with(PREFIX) && name(folder).ends_with(WORKER_SUFFIX)
}

fn worker_group_of(parent: &Path) -> PathBuf {
    parent.with_file_name(format!("{}{WORKER_SUFFIX}", name(parent)))
}

fn name(folder: &Path) -> &str {
    folder.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

fn switch(folder: &Path, sign: char, controller: &str) -> Result<(), Error> {
    write(&folder.join("cgroup.subtree_control"), &format!("{sign}{controller}"))
}

/// Makes a group; one that an earlier process left is fine.
fn make(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Moves the processes of a group, and those that they start meanwhile.
fn move_all(from: &Path, to: &Path) -> Result<(), Error> {
    let procs = to.join(Version::V2.interface().join_file());
    for _ in 0..MAX_MOVE_ROUNDS {
        let left = processes(from);
        if left.is_empty() {
            break;
        }
        for pid in left {
            match write(&procs, &pid.to_string()) {
                // It has ended.
                Err(Error::Write { source, .. }) if source.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// This process, and those that started it.
fn own_and_ancestors() -> Vec<i32> {
    let parent = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
        fields.next()?.parse().ok().filter(|pid| *pid > 0)
    };
    let own = i32::try_from(std::process::id()).ok();
    std::iter::successors(own, parent).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::tree::clear_tree;

    /// A folder that stands for the tree, and this process in one of its groups.
    struct Fake {
        top: tempfile::TempDir,
        own: &'static str,
    }

    impl Fake {
        fn new(own: &'static str) -> Self {
            let top = tempfile::tempdir().unwrap();
            for folder in top.path().join(own).ancestors() {
                if folder.starts_with(top.path()) {
                    fs::create_dir_all(folder).unwrap();
                    for file in ["cgroup.procs", "cgroup.subtree_control"] {
                        fs::write(folder.join(file), "").unwrap();
                    }
                }
            }
            Self { top, own }
        }

        fn own(&self) -> PathBuf {
            self.top.path().join(self.own)
        }

        fn base(&self, root: bool) -> Result<PathBuf, Obstacle> {
            let line = format!("1 0 0:1 / {} rw - cgroup2 cgroup rw", self.top.path().display());
            let mounts = Mounts::parse(&line, format!("0::/{}\n", self.own), root);
            base(&mounts, &mounts.trees[0])
        }

        fn mark(&self, folder: &str) -> bool {
            let folder = self.top.path().join(folder);
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(folder, "user.delegate", b"1", flags).is_ok()
        }
    }

    #[test]
    fn root_owns_only_what_is_delegated_to_it() {
        let fake = Fake::new("system.slice/x.service");
        assert_eq!(fake.base(true), Err(Obstacle::NotDelegated(fake.own())));
        assert!(fake.base(true).unwrap_err().to_string().contains("Delegate=yes"));
        // To an ordinary user, write access is delegation.
        assert_eq!(fake.base(false), Ok(fake.own()));
        if fake.mark("system.slice/x.service") {
            assert_eq!(fake.base(true), Ok(fake.own()));
        }
        let below = Fake::new("x.service/init");
        if below.mark("x.service") {
            assert_eq!(below.base(true), Ok(below.own()), "what is below is delegated, too");
        }
    }

    #[test]
    fn what_a_container_sees_is_its_own() {
        let fake = Fake::new("init");
        assert!(matches!(fake.base(true), Err(Obstacle::NotDelegated(_))));
        fs::write(fake.top.path().join("cgroup.type"), "domain\n").unwrap();
        assert_eq!(fake.base(true), Ok(fake.own()));
        let top = Fake::new("");
        assert_eq!(top.base(true), Ok(top.top.path().to_owned()));
        let elsewhere = Fake { own: "../elsewhere", ..Fake::new("") };
        assert!(matches!(elsewhere.base(true), Err(Obstacle::NotDelegated(_))));
    }

    #[test]
    fn a_group_that_cannot_be_written_is_named() {
        let fake = Fake::new("");
        fs::remove_file(fake.own().join("cgroup.subtree_control")).unwrap();
        assert_eq!(fake.base(true), Err(Obstacle::NotWritable(fake.own())));
    }

    #[test]
    fn whoever_is_in_a_leaf_belongs_to_the_group_above() {
        let fake = Fake::new("uncia-0123456789abcdef-worker");
        assert_eq!(fake.base(true), Ok(fake.top.path().to_owned()));
    }

    #[test]
    fn a_group_with_others_in_it_is_left_as_it_is() {
        let fake = Fake::new("");
        let (own, parent) = (fake.own(), fake.own().join("uncia-x"));
        fs::create_dir(&parent).unwrap();
        fs::write(own.join("cgroup.type"), "domain\n").unwrap();
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        for procs in [format!("{}\n{}\n", std::process::id(), other.id()), "0\n".to_owned()] {
            fs::write(own.join("cgroup.procs"), &procs).unwrap();
            let before = fs::read_to_string(own.join("cgroup.subtree_control")).unwrap();
            fs::write(parent.join("cgroup.subtree_control"), "").unwrap();
            let refused = switch_on(&own, &parent, &["memory"]);
            assert_eq!(refused, Err(Obstacle::Occupied(own.clone())));
            assert_eq!(fs::read_to_string(own.join("cgroup.procs")).unwrap(), procs);
            assert!(!worker_group_of(&parent).exists() && records(&parent).is_empty());
            // In a plain folder the last word stays, which is to switch off.
            let after = fs::read_to_string(own.join("cgroup.subtree_control")).unwrap();
            assert!(after == before || after == "-memory", "{after}");
        }
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn this_process_comes_before_its_parent() {
        let own_and_ancestors = own_and_ancestors();
        assert_eq!(own_and_ancestors[0], i32::try_from(std::process::id()).unwrap());
        assert_eq!(own_and_ancestors[1], nix::unistd::getppid().as_raw());
    }

    /// One test at a time switches controllers on and off at the top.
    static TOP: Mutex<()> = Mutex::new(());

    /// A group of the machine's own tree of version 2, with a controller that it may pass on.
    struct Real {
        _turn: MutexGuard<'static, ()>,
        group: PathBuf,
        controller: String,
        /// Whether the controller was switched on for it above.
        switched: bool,
    }

    impl Real {
        fn new(name: &str) -> Option<Self> {
            let turn = TOP.lock().unwrap_or_else(PoisonError::into_inner);
            let mounts = Mounts::read().ok()?;
            let tree = mounts.trees.iter().find(|tree| tree.version == Version::V2)?;
            let top = &tree.mount;
            let controller = words(&top.join("cgroup.controllers")).into_iter().next()?;
            let switched = !words(&top.join("cgroup.subtree_control")).contains(&controller);
            if switched {
                switch(top, '+', &controller).ok()?;
            }
            let group = top.join(format!("test-{name}-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            Some(Self { _turn: turn, group, controller, switched })
        }

        fn subtree(&self) -> Vec<String> {
            words(&self.group.join("cgroup.subtree_control"))
        }
    }

    impl Drop for Real {
        fn drop(&mut self) {
            let _ = clear_tree(&self.group);
            if self.switched {
                let _ = switch(self.group.parent().unwrap(), '-', &self.controller);
            }
        }
    }

    #[test]
    fn what_was_switched_on_is_undone_by_whoever_clears_it() {
        let Some(real) = Real::new("delegation") else {
            eprintln!("not run: no tree of version 2 with a controller to switch on");
            return;
        };
        let (base, parent) = (&real.group, real.group.join("uncia-x"));
        let controllers = [real.controller.as_str()];
        fs::create_dir(&parent).unwrap();

        // Nobody is in the way.
        switch_on(base, &parent, &controllers).unwrap();
        assert_eq!(words(&parent.join("cgroup.subtree_control")), controllers);
        assert!(!worker_group_of(&parent).exists());

        // A second one finds the controller switched on; the first does not take it away.
        let second = base.join("uncia-y");
        fs::create_dir(&second).unwrap();
        switch_on(base, &second, &controllers).unwrap();
        clear_tree(&parent).unwrap();
        assert_eq!(real.subtree(), controllers);
        clear_tree(&second).unwrap();
        assert!(real.subtree().is_empty());

        // What was on before stays on.
        switch(base, '+', controllers[0]).unwrap();
        fs::create_dir(&parent).unwrap();
        switch_on(base, &parent, &controllers).unwrap();
        assert!(records(&parent).is_empty());
        clear_tree(&parent).unwrap();
        assert_eq!(real.subtree(), controllers);
        switch(base, '-', controllers[0]).unwrap();

        // A process in the group that did not start this one: nothing is done.
        let mut other = Command::new("sleep").arg("600").spawn().unwrap();
        write(&base.join("cgroup.procs"), &other.id().to_string()).unwrap();
        fs::create_dir(&parent).unwrap();
        let refused = switch_on(base, &parent, &controllers);
        assert_eq!(refused, Err(Obstacle::Occupied(base.clone())));
        assert!(real.subtree().is_empty() && records(&parent).is_empty());

        // A leftover of a crash: the leaf with somebody in it, and the controller switched on.
        let leaf = worker_group_of(&parent);
        make(&leaf).unwrap();
        move_all(base, &leaf).unwrap();
        switch_on(base, &parent, &controllers).unwrap();
        assert_eq!(processes(&leaf), [i32::try_from(other.id()).unwrap()]);
        clear_tree(&parent).unwrap();
        assert!(!leaf.exists() && !parent.exists() && real.subtree().is_empty());
        assert_eq!(processes(base), [i32::try_from(other.id()).unwrap()], "it lives, as before");
        other.kill().unwrap();
        other.wait().unwrap();
    }

    /// What [`worker`] is given: the group that it is to be in.
    const BASE: &str = "UNCIA_TEST_BASE";

    /// No test, but the process that other tests start: it enters a group, switches everything on,
    /// and clears when its standard input ends.
    #[test]
    fn worker() {
        let Some(base) = std::env::var_os(BASE).map(PathBuf::from) else { return };
        write(&base.join("cgroup.procs"), &std::process::id().to_string()).unwrap();
        let parent = base.join("uncia-x");
        let controllers = words(&base.join("cgroup.controllers"));
        let controllers: Vec<_> = controllers.iter().map(String::as_str).collect();
        fs::create_dir(&parent).unwrap();
        switch_on(&base, &parent, &controllers).unwrap();
        fs::create_dir(parent.join("ready")).unwrap();
        io::stdin().read_line(&mut String::new()).unwrap();
        clear_tree(&parent).unwrap();
        assert_eq!(processes(&base), own_and_ancestors()[..1]);
    }

    fn start_worker(base: &Path) -> std::process::Child {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "delegation::tests::worker", "--nocapture"])
            .env(BASE, base)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        while !base.join("uncia-x/ready").exists() {
            assert!(child.try_wait().unwrap().is_none(), "it ended early");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child
    }

    #[test]
    fn a_worker_makes_room_for_its_groups_and_comes_back() {
        let Some(real) = Real::new("leaf") else {
            eprintln!("not run: no tree of version 2 with a controller to switch on");
            return;
        };
        let leaf = worker_group_of(&real.group.join("uncia-x"));
        let mut child = start_worker(&real.group);
        assert_eq!(processes(&leaf), [i32::try_from(child.id()).unwrap()]);
        assert_eq!(real.subtree(), words(&real.group.join("cgroup.controllers")));
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        assert!(real.subtree().is_empty() && children(&real.group).unwrap().is_empty());
    }

    #[test]
    fn what_a_killed_worker_left_is_undone() {
        let Some(real) = Real::new("killed") else {
            eprintln!("not run: no tree of version 2 with a controller to switch on");
            return;
        };
        let parent = real.group.join("uncia-x");
        let mut child = start_worker(&real.group);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(worker_group_of(&parent).exists() && !real.subtree().is_empty());
        clear_tree(&parent).unwrap();
        assert!(real.subtree().is_empty() && children(&real.group).unwrap().is_empty());
    }
}
