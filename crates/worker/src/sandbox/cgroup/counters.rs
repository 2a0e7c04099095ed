//! What a group has used, read through descriptors that stay open: 0.5 us a look instead of 2.6.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use uncia_cgroup::{keyed, pread};

use super::{Controller, Version};

const NS_PER_US: i64 = 1_000;

/// CPU time of a group since it was made, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Exact: the scheduler's own account.
    pub total: i64,
    /// What the kernel attributes to user and system. Version 1 samples this at ticks, so it may
    /// neither add up to `total` nor move at all during a short invocation; only its proportion is used.
    pub user: i64,
    pub system: i64,
}

/// How often and how long a group was throttled since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttling {
    pub count: i64,
    pub ns: i64,
}

/// The threads of a group that run or wait for a CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Running {
    pub threads: u32,
    /// Where they are, each once.
    pub cpus: Vec<usize>,
}

/// The `/proc/<thread>/stat` of a group's threads, kept open as long as their number is the same.
#[derive(Debug, Default)]
pub struct Threads {
    list: Vec<File>,
    count: Option<i64>,
}

impl Threads {
    /// None if one of them has ended.
    fn running(&self) -> Option<Running> {
        let mut running = Running::default();
        for stat in &self.list {
            let Some(cpu) = pread(stat, |text| Some(running_on(text)))? else { continue };
            running.threads += 1;
            if !running.cpus.contains(&cpu) {
                running.cpus.push(cpu);
            }
        }
        Some(running)
    }
}

/// Open counters of one instance; those that the machine does not have are `None`.
#[derive(Debug)]
pub struct Counters {
    version: Version,
    /// Version 1: `cpuacct.usage`; version 2: `cpu.stat`.
    cpu: Option<File>,
    user: Option<File>,
    system: Option<File>,
    stat: Option<File>,
    memory: Option<File>,
    peak: Option<File>,
    events: Option<File>,
    /// How many threads there are.
    tasks: Option<File>,
    /// Whose threads are counted. Version 1 makes this list when the file is opened, so it does not
    /// stay open.
    thread_list: Option<PathBuf>,
    /// Whether the kernel lets the peak be reset; version 2 does since Linux 6.12.
    peak_resets: AtomicBool,
}

impl Counters {
    pub fn open<'a>(version: Version, folder: impl Fn(Controller) -> Option<&'a Path>) -> Self {
        let open = |controller, file: &str| File::open(folder(controller)?.join(file)).ok();
        let open_both = |controller, file: &str| {
            let path = folder(controller)?.join(file);
            File::options().read(true).write(true).open(&path).or_else(|_| File::open(path)).ok()
        };
        let list = |controller, file: &str| Some(folder(controller)?.join(file));
        use Controller::{Cpu, CpuAccounting, Memory, Pids};
        match version {
            Version::V1 => Self {
                version,
                cpu: open(CpuAccounting, "cpuacct.usage"),
                user: open(CpuAccounting, "cpuacct.usage_user"),
                system: open(CpuAccounting, "cpuacct.usage_sys"),
                stat: open(Cpu, "cpu.stat"),
                memory: open(Memory, "memory.usage_in_bytes"),
                peak: open_both(Memory, "memory.max_usage_in_bytes"),
                events: open(Memory, "memory.oom_control"),
                tasks: open(Pids, "pids.current"),
                thread_list: list(CpuAccounting, "tasks"),
                peak_resets: AtomicBool::new(true),
            },
            Version::V2 => Self {
                version,
                cpu: open(CpuAccounting, "cpu.stat"),
                user: None,
                system: None,
                stat: open(Cpu, "cpu.stat"),
                memory: open(Memory, "memory.current"),
                peak: open_both(Memory, "memory.peak"),
                events: open(Memory, "memory.events"),
                tasks: open(Pids, "pids.current"),
                thread_list: list(CpuAccounting, "cgroup.threads"),
                peak_resets: AtomicBool::new(true),
            },
        }
    }

    pub fn cpu(&self) -> Option<Cpu> {
        let number = |file: &Option<File>| pread(file.as_ref()?, |text| text.trim().parse().ok());
        match self.version {
            Version::V1 => Some(Cpu {
                total: number(&self.cpu)?,
                user: number(&self.user).unwrap_or_default(),
                system: number(&self.system).unwrap_or_default(),
            }),
            Version::V2 => pread(self.cpu.as_ref()?, |text| {
                Some(Cpu {
                    total: keyed::<i64>(text, "usage_usec")? * NS_PER_US,
                    user: keyed::<i64>(text, "user_usec")? * NS_PER_US,
                    system: keyed::<i64>(text, "system_usec")? * NS_PER_US,
                })
            }),
        }
    }

    pub fn throttling(&self) -> Option<Throttling> {
        let counted = uncia_cgroup::Throttling::read(self.stat.as_ref()?)?;
        Some(Throttling {
            count: counted.throttled.try_into().ok()?,
            ns: counted.throttled_ns.try_into().ok()?,
        })
    }

    /// Memory in use now, in bytes: anonymous memory, `/tmp`, kernel memory, and the page cache of
    /// files that this group was the first to read.
    pub fn memory(&self) -> Option<i64> {
        pread(self.memory.as_ref()?, |text| text.trim().parse().ok())
    }

    /// The most memory in use since [`Self::reset_peak`]; `None` if the kernel keeps it for the
    /// group's whole life only.
    pub fn peak(&self) -> Option<i64> {
        if !self.peak_resets.load(Ordering::Relaxed) {
            return None;
        }
        pread(self.peak.as_ref()?, |text| text.trim().parse().ok())
    }

    pub fn reset_peak(&self) {
        if let Some(mut peak) =
            self.peak.as_ref().filter(|_| self.peak_resets.load(Ordering::Relaxed))
            && peak.write_all(b"0").is_err()
        {
            self.peak_resets.store(false, Ordering::Relaxed);
        }
    }

    /// How many threads the group has.
    pub fn threads(&self) -> Option<i64> {
        pread(self.tasks.as_ref()?, |text| text.trim().parse().ok())
    }

    /// Who runs now.
    pub fn running(&self, threads: &mut Threads) -> Running {
        let count = self.threads();
        if count.is_none() || count != threads.count || threads.list.is_empty() {
            self.list(threads, count);
        }
        threads.running().unwrap_or_else(|| {
            // One of them has ended, and maybe another has begun.
            self.list(threads, count);
            threads.running().unwrap_or_default()
        })
    }

    fn list(&self, threads: &mut Threads, count: Option<i64>) {
        let list = self.thread_list.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let open = |thread: &str| File::open(format!("/proc/{thread}/stat")).ok();
        threads.list = list.as_deref().unwrap_or_default().lines().filter_map(open).collect();
        threads.count = count;
    }

    /// How many processes of the group the kernel has killed for lack of memory.
    pub fn oom_kills(&self) -> Option<i64> {
        pread(self.events.as_ref()?, |text| keyed(text, "oom_kill"))
    }
}

/// The CPU of a thread that runs, from its `/proc/<thread>/stat`: the third field says whether it
/// does, the 39th where. The name in parentheses may hold spaces.
fn running_on(stat: &str) -> Option<usize> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if fields.next()? != "R" {
        return None;
    }
    fields.nth(35)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(version: Version, files: &[(&str, &str)]) -> (tempfile::TempDir, Counters) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let path = folder.path().to_owned();
        let counters = Counters::open(version, |_| Some(&path));
        (folder, counters)
    }

    #[test]
    fn version_1() {
        let (_folder, counters) = counters(
            Version::V1,
            &[
                ("cpuacct.usage", "123456789\n"),
                ("cpuacct.usage_user", "100000000\n"),
                ("cpuacct.usage_sys", "20000000\n"),
                ("cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 5000\n"),
                ("memory.usage_in_bytes", "4096\n"),
                ("memory.max_usage_in_bytes", "8192\n"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
                ("pids.current", "3\n"),
            ],
        );
        let cpu = Cpu { total: 123_456_789, user: 100_000_000, system: 20_000_000 };
        assert_eq!(counters.cpu(), Some(cpu));
        assert_eq!(counters.throttling(), Some(Throttling { count: 4, ns: 5000 }));
        assert_eq!((counters.memory(), counters.peak()), (Some(4096), Some(8192)));
        assert_eq!(counters.oom_kills(), Some(2));
        assert_eq!(counters.threads(), Some(3));
    }

    #[test]
    fn who_runs_and_where() {
        let rest = (4..=52).map(|field| field.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(running_on(&format!("71 (a ) b) R {rest}")), Some(39));
        assert_eq!(running_on(&format!("71 (name) S {rest}")), None);
        assert_eq!(running_on(""), None);
        // This thread does.
        let own = format!("{}\n", nix::unistd::gettid());
        let (_folder, counters) = counters(Version::V1, &[("tasks", &own)]);
        let mut threads = Threads::default();
        for _ in 0..2 {
            let running = counters.running(&mut threads);
            assert_eq!((running.threads, running.cpus.len()), (1, 1));
        }
        // One that has ended since, and as many as before.
        let (say, said) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            say.send(nix::unistd::gettid()).unwrap();
            ends.recv()
        });
        threads.list[0] = File::open(format!("/proc/{}/stat", said.recv().unwrap())).unwrap();
        drop(end);
        assert!(other.join().unwrap().is_err());
        assert_eq!(counters.running(&mut threads).threads, 1);
    }

    #[test]
    fn version_2_counts_microseconds() {
        let (_folder, counters) = counters(
            Version::V2,
            &[
                (
                    "cpu.stat",
                    "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 1\nnr_throttled 1\n\
                     throttled_usec 7\n",
                ),
                ("memory.current", "1\n"),
                ("memory.peak", "2\n"),
                ("memory.events", "low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\n"),
            ],
        );
        let cpu = Cpu { total: 30_000, user: 20_000, system: 10_000 };
        assert_eq!(counters.cpu(), Some(cpu));
        assert_eq!(counters.throttling(), Some(Throttling { count: 1, ns: 7000 }));
        assert_eq!((counters.memory(), counters.peak()), (Some(1), Some(2)));
        assert_eq!(counters.oom_kills(), Some(1));
    }

    #[test]
    fn what_is_missing_is_none() {
        let (_folder, bare) =
            counters(Version::V2, &[("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\n")]);
        assert!(bare.cpu().is_some());
        assert_eq!(
            bare.throttling(),
            None,
            "no cpu controller, so nothing is throttled or counted"
        );
        assert_eq!((bare.memory(), bare.peak(), bare.oom_kills()), (None, None, None));
        assert_eq!(bare.threads(), None);
    }
}
