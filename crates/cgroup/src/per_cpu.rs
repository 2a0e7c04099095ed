//! CPU time by CPU: an account of version 1, and an event of the kernel's on version 2, which keeps none.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use crate::files::pread;
use crate::{PerfEvent, Version};

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_CPU_CLOCK`: ns in which processes of a group ran.
const CPU_CLOCK: (u32, u64) = (1, 0);

/// The CPU time of a group and all below it, on each CPU.
#[derive(Debug)]
pub struct PerCpu(Kind);

#[derive(Debug)]
enum Kind {
    Account(File),
    /// By CPU, from 0 on. None where nothing of the group runs.
    Events(Vec<Option<PerfEvent>>),
}

impl PerCpu {
    /// Opens the account of the group in this folder, whose processes may run on these CPUs; None where the
    /// kernel keeps none and lets this user count no events.
    ///
    /// On version 2 it counts from now on, and has a descriptor for each CPU.
    #[must_use]
    pub fn open(version: Version, folder: &Path, cpus: &[usize]) -> Option<Self> {
        let kind = match version {
            Version::V1 => Kind::Account(File::open(folder.join("cpuacct.usage_percpu")).ok()?),
            Version::V2 => Kind::Events(events(folder, cpus)?),
        };
        let account = Self(kind);
        account.read().map(|_| account)
    }

    /// The CPU time in ns of each CPU, from 0 on. Once the group is gone, None on version 1.
    #[must_use]
    pub fn read(&self) -> Option<Vec<i64>> {
        match &self.0 {
            Kind::Account(file) => pread(file, |text| {
                let counts = text.split_ascii_whitespace().map(|count| count.parse().ok());
                counts.collect::<Option<Vec<i64>>>().filter(|counts| !counts.is_empty())
            }),
            Kind::Events(events) => {
                let count = |event: &Option<PerfEvent>| match event {
                    Some(event) => i64::try_from(event.read()?.count).ok(),
                    None => Some(0),
                };
                events.iter().map(count).collect()
            }
        }
    }
}

fn events(folder: &Path, cpus: &[usize]) -> Option<Vec<Option<PerfEvent>>> {
    let group = File::open(folder).ok()?;
    let (class, number) = CPU_CLOCK;
    let mut events: Vec<_> = (0..=*cpus.iter().max()?).map(|_| None).collect();
    for cpu in cpus {
        let number_of_cpu = i32::try_from(*cpu).ok()?;
        let event = PerfEvent::open(class, number, number_of_cpu, Some(group.as_fd()));
        events[*cpu] = Some(event.ok()?);
    }
    Some(events)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;
    use crate::Mounts;
    use crate::files::{keyed, read};

    /// A group in the tree of version 2, removed when dropped; `None` where this process may make none.
    struct Made(PathBuf);

    impl Made {
        fn new() -> Option<Self> {
            let mounts = Mounts::read().ok()?;
            let (.., mount) = mounts.mounted().find(|(version, ..)| *version == Version::V2)?;
            let folder = mount.join(format!("uncia-per-cpu-test-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            Some(Self(folder))
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_dir(&self.0);
        }
    }

    fn cpus() -> Vec<usize> {
        let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
        (0..nix::sched::CpuSet::count()).filter(|cpu| set.is_set(*cpu).unwrap()).collect()
    }

    #[test]
    fn version_2_counts_by_events_where_a_group_ran() {
        let cpus = cpus();
        let Some((group, account)) = Made::new().and_then(|group| {
            let account = PerCpu::open(Version::V2, &group.0, &cpus)?;
            Some((group, account))
        }) else {
            eprintln!("not run: this process may make no group of version 2, or count no events");
            return;
        };
        let last = *cpus.last().unwrap();
        assert_eq!(account.read(), Some(vec![0; last + 1]));
        // In bash alone, so that nothing else uses time there.
        let burn = format!(
            "echo 0 > {}; for ((n = 0; n < 300000; n++)); do :; done",
            group.0.join("cgroup.procs").display()
        );
        let on_the_last = ["-c", &last.to_string(), "bash", "-c", &burn];
        assert!(Command::new("taskset").args(on_the_last).status().unwrap().success());
        let counted = account.read().unwrap();
        let stat = read(&group.0.join("cpu.stat")).unwrap();
        let used = keyed::<i64>(&stat, "usage_usec").unwrap() * 1_000;
        assert!(used > 0 && counted[..last].iter().all(|count| *count == 0), "{counted:?}");
        let error = (counted[last] - used).abs();
        assert!(error < used / 10, "{} ns, by its own account {used}", counted[last]);
        // It outlives the group, for who reads it last.
        drop(group);
        assert_eq!(account.read(), Some(counted));
    }

    #[test]
    fn what_nobody_counts_is_none() {
        let folder = tempfile::tempdir().unwrap();
        for version in [Version::V1, Version::V2] {
            assert!(PerCpu::open(version, folder.path(), &[0]).is_none());
        }
        fs::write(folder.path().join("cpuacct.usage_percpu"), "5 70 0\n").unwrap();
        let account = PerCpu::open(Version::V1, folder.path(), &[0]).unwrap();
        assert_eq!(account.read(), Some(vec![5, 70, 0]));
    }
}
