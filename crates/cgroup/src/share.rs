//! Several groups that have one group's share of the CPU.
//!
//! The kernel divides the CPU between the groups that want it at a time. Whoever has many groups would
//! get the most of it, so groups that belong together are made below one that stands for them all.

use std::sync::{Arc, PoisonError};

use crate::tree::children;
use crate::{Controller, Error, Group, Layout, Limits};

/// A group whose members together get as much CPU time as one group beside it, when there is not
/// enough for all. It limits nothing else, and is removed with the last of its members.
#[derive(Debug)]
pub struct CpuShare {
    /// Where its members are made.
    members: Layout,
    /// Dropped with this.
    group: Group,
}

impl Drop for CpuShare {
    fn drop(&mut self) {
        let has_member = |folder| children(folder).is_ok_and(|members: Vec<_>| !members.is_empty());
        if self.group.unique().any(has_member) {
            // It could not be removed, so this cannot: the next sweep removes both.
            self.group.leave();
        }
    }
}

impl CpuShare {
    /// Makes a share without members; `None` if this process has no CPU controller.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(layout: &Layout, name: &str) -> Result<Option<Self>, Error> {
        let Some(cpu) = layout.parents.get(&Controller::Cpu) else { return Ok(None) };
        // Version 1: the other controllers' trees stay as they are.
        let mut own = layout.clone();
        own.parents.retain(|_, parent| parent == cpu);
        own.unified = None;
        let group = Group::unlimited(&own, name)?;
        let mut members = layout.clone();
        for (controller, parent) in &mut members.parents {
            if let Some(folder) = group.folder(*controller) {
                folder.clone_into(parent);
            }
        }
        let controllers: Vec<_> = own.parents.into_keys().collect();
        for folder in group.unique() {
            layout.version.interface().pass_on(folder, &controllers)?;
        }
        group.set_cpu_part(1)?;
        Ok(Some(Self { members, group }))
    }

    /// Gives it this part of what the groups beside it get, as [`Group::set_shares`] does.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_shares(&self, shares: u64) -> Result<(), Error> {
        self.group.set_shares(shares)
    }

    /// Has all members together run only where nobody else wants to, or no more: then it has the weight of
    /// a share again.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_idle(&self, idle: bool) -> Result<(), Error> {
        self.group.set_idle(idle)?;
        if idle { Ok(()) } else { self.group.set_cpu_part(1) }
    }

    /// Makes a member, as [`Group::create`] does.
    ///
    /// # Errors
    /// It cannot be made, or the kernel refuses a limit.
    pub fn member(self: &Arc<Self>, name: &str, limits: &Limits) -> Result<Group, Error> {
        let group = Group::create(&self.members, name, limits)?;
        *group.share.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
        Ok(group)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::path::Path;
    use std::process::{Child, Command};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{Mounts, Version, own_name};

    const LIMITS: Limits =
        Limits { memory_bytes: 134_217_728, pids_max: 64, cpu_micro: 1_000_000, period_us: 20_000 };

    fn layout(version: Version, parents: &[(Controller, &Path)]) -> Layout {
        let parents: BTreeMap<_, _> = parents
            .iter()
            .map(|(controller, parent)| (*controller, (*parent).to_owned()))
            .collect();
        let available = parents.keys().copied().collect();
        Layout { version, parents, unified: None, available, obstacle: None }
    }

    #[test]
    fn version_1_has_shares_in_the_tree_of_the_cpu_alone() {
        let top = tempfile::tempdir().unwrap();
        let [cpu, freezer] = ["cpu", "freezer"].map(|name| top.path().join(name));
        fs::create_dir(&cpu).unwrap();
        fs::create_dir(&freezer).unwrap();
        let trees = [
            (Controller::Cpu, cpu.as_path()),
            (Controller::CpuAccounting, &cpu),
            (Controller::Freezer, &freezer),
        ];
        let share = CpuShare::create(&layout(Version::V1, &trees), "f").unwrap().map(Arc::new);
        let member = Group::unlimited(&share.unwrap().members, "a").unwrap();
        let folders: Vec<_> = member.unique().collect();
        assert_eq!(folders, [cpu.join("f/a"), freezer.join("a")]);
        let without = layout(Version::V1, &trees[2..]);
        assert!(CpuShare::create(&without, "f").unwrap().is_none());
    }

    #[test]
    fn a_share_with_a_member_that_stays_is_not_touched() {
        let top = tempfile::tempdir().unwrap();
        let layout = layout(Version::V1, &[(Controller::Cpu, top.path())]);
        let share = Arc::new(CpuShare::create(&layout, "f").unwrap().unwrap());
        let member = share.member("a", &LIMITS).unwrap();
        // Thawed by whoever would remove it.
        let freezer = top.path().join("f/freezer.state");
        fs::write(&freezer, "FROZEN").unwrap();
        fs::write(top.path().join("f/a/busy"), "").unwrap();
        drop(share);
        member.remove().unwrap_err();
        assert_eq!(fs::read_to_string(&freezer).unwrap(), "FROZEN");
    }

    fn real_layout() -> Option<Layout> {
        let layout = Mounts::read().unwrap().discover(&own_name(), &Controller::ALL, false);
        let usable = |it: &Layout| Controller::ALL.iter().all(|one| it.has(*one));
        let layout = layout.filter(usable);
        if layout.is_none() {
            eprintln!("not run: no control groups that this process may make");
        }
        layout
    }

    #[test]
    fn a_share_goes_with_its_last_member() {
        let Some(layout) = real_layout() else { return };
        let share = Arc::new(CpuShare::create(&layout, "f").unwrap().unwrap());
        let folder = layout.parents[&Controller::Cpu].join("f");
        let [first, second] = ["a", "b"].map(|name| share.member(name, &LIMITS).unwrap());
        drop(share);
        let part = Group::unlimited(&layout, "part").unwrap();
        part.set_cpu_part(1).unwrap();
        let (file, _) = layout.version.interface().weights();
        let weight = |folder: &Path| fs::read_to_string(folder.join(file)).unwrap();
        assert_eq!(weight(&folder), weight(part.folder(Controller::Cpu).unwrap()));
        drop(part);
        first.set_quota(&LIMITS).unwrap();
        first.remove().unwrap();
        assert!(folder.join("b").exists() && !folder.join("a").exists());
        second.remove().unwrap();
        assert!(!folder.exists());
        layout.remove().unwrap();
    }

    /// The first of the CPUs that this process may run on.
    fn first_cpu() -> String {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        list.trim().split(['-', ',']).next().unwrap().to_owned()
    }

    /// Burns CPU time on one CPU, which it shares with the others.
    fn spinner(group: &Group) -> Child {
        let join: Vec<_> =
            group.join_files().iter().map(|file| format!("echo 0 > {}", file.display())).collect();
        let script = format!("{}; while :; do :; done", join.join("; "));
        Command::new("taskset").args(["-c", &first_cpu(), "bash", "-c", &script]).spawn().unwrap()
    }

    #[test]
    fn members_together_get_what_one_group_gets() {
        let Some(layout) = real_layout() else { return };
        let [many, one] =
            ["many", "one"].map(|name| Arc::new(CpuShare::create(&layout, name).unwrap().unwrap()));
        let mut groups: Vec<_> =
            (0..6).map(|n| many.member(&format!("m{n}"), &LIMITS).unwrap()).collect();
        groups.push(one.member("o", &LIMITS).unwrap());
        let mut spinners: Vec<_> = groups.iter().map(spinner).collect();
        let used = |group: &Group| group.counters().cpu().map_or(0, |cpu| cpu.total);
        let deadline = Instant::now() + Duration::from_secs(60);
        let wait_until = |reached: &dyn Fn() -> bool| {
            while !reached() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(20));
            }
        };
        let use_of = |groups: &[Group]| groups.iter().map(used).sum::<i64>();
        wait_until(&|| groups.iter().all(|group| used(group) > 20_000_000));
        let before = (use_of(&groups[6..]), use_of(&groups[..6]));
        // However little of the CPU they get in all.
        wait_until(&|| use_of(&groups) - before.0 - before.1 > 2_000_000_000);
        let (single, others) = (use_of(&groups[6..]) - before.0, use_of(&groups[..6]) - before.1);
        for child in &mut spinners {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        drop((groups, many, one));
        layout.remove().unwrap();
        // By group, it would be a seventh of all.
        assert!(single > others / 3, "{single} ns, and the others {others} ns");
    }
}
