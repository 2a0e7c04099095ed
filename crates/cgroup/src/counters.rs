//! What a group has used, read through descriptors that stay open: 0.5 us an access instead of 2.6.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::files::{keyed, keyed_together, number, pread};
use crate::interface::Interface;
use crate::{Controller, Version};

/// CPU time of a group since it was made, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Exact: the scheduler's own account.
    pub total: i64,
    /// What the kernel attributes to user and system. Version 1 samples this at ticks, so it may
    /// neither add up to `total` nor move at all during a short invocation; only its proportion is
    /// used.
    pub user: i64,
    /// As `user`.
    pub system: i64,
}

/// How often and how long a group was throttled since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Periods that have ended while the group had something to run.
    pub periods: i64,
    /// Periods at whose end the group was throttled: one throttle that lasts for three periods
    /// counts three times (`do_sched_cfs_period_timer`, kernel/sched/fair.c).
    pub count: i64,
    /// How long, in ns.
    pub ns: i64,
}

impl Throttling {
    /// Reads an open `cpu.stat` of either version; `None` if it counts no throttling.
    #[must_use]
    pub fn read(file: &File) -> Option<Self> {
        pread(file, Self::parse)
    }

    /// Reads the text of `cpu.stat`: version 1 counts ns, version 2 us.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // The key of version 1 is looked for first: its file is read apart from the CPU time.
        let keys = ["nr_periods", "nr_throttled", "throttled_time"];
        let [periods, count, ns] = keyed_together(text, keys);
        let ns = ns.or_else(|| keyed::<i64>(text, "throttled_usec")?.checked_mul(1_000));
        Some(Self { periods: periods?, count: count?, ns: ns? })
    }

    /// What was added since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            periods: self.periods - before.periods,
            count: self.count - before.count,
            ns: self.ns - before.ns,
        }
    }
}

/// How often and how long a group ran beyond its quota on what it had saved up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bursts {
    /// Periods in which it did.
    pub count: i64,
    /// For how long, in ns.
    pub ns: i64,
}

impl Bursts {
    fn parse(text: &str) -> Option<Self> {
        Some(Self { count: keyed(text, "nr_bursts")?, ns: time(text, "burst_time", "burst_usec")? })
    }
}

/// A time of `cpu.stat` in ns: version 1 counts ns, version 2 us.
fn time(text: &str, ns_key: &str, us_key: &str) -> Option<i64> {
    keyed(text, ns_key).or_else(|| keyed::<i64>(text, us_key)?.checked_mul(1_000))
}

/// Everything that the kernel counts of a group; what it does not is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readings {
    /// CPU time.
    pub cpu: Option<Cpu>,
    /// Throttles by its quota.
    pub throttling: Option<Throttling>,
    /// What it ran beyond its quota.
    pub bursts: Option<Bursts>,
    /// See [`Counters::memory`].
    pub memory: Option<i64>,
    /// See [`Counters::peak`].
    pub peak: Option<i64>,
    /// See [`Counters::oom_kills`].
    pub oom_kills: Option<i64>,
}

/// Open counters of one group; those that the machine does not have are `None`.
#[derive(Debug)]
pub struct Counters {
    interface: &'static dyn Interface,
    cpu: Option<File>,
    cpu_split: Option<File>,
    stat: Option<File>,
    memory: Option<File>,
    peak: Option<File>,
    oom: Option<File>,
    /// How many threads there are.
    pids: Option<File>,
    /// Whose threads are counted. Version 1 makes this list when the file is opened, so it does not
    /// stay open.
    pub(crate) thread_list: Option<PathBuf>,
    /// Whether the kernel lets the peak be reset; version 2 does since Linux 6.12.
    peak_resets: AtomicBool,
    /// Where it does not, the peak when it was last to begin anew, in bytes.
    earlier_peak: AtomicI64,
}

impl Counters {
    /// Opens the counters of a group that has a folder for each controller.
    #[must_use]
    pub fn open<'a>(version: Version, folder: impl Fn(Controller) -> Option<&'a Path>) -> Self {
        use Controller::{Cpu, CpuAccounting, Memory, Pids};
        let interface = version.interface();
        let files = interface.counter_files();
        let path = |controller, file: &str| Some(folder(controller)?.join(file));
        let open = |controller, file: &str| File::open(path(controller, file)?).ok();
        let peak = path(Memory, files.peak).and_then(|path| {
            File::options().read(true).write(true).open(&path).or_else(|_| File::open(path)).ok()
        });
        Self {
            interface,
            cpu: open(CpuAccounting, files.cpu),
            cpu_split: files.cpu_split.and_then(|file| open(CpuAccounting, file)),
            stat: files.stat.and_then(|file| open(Cpu, file)),
            memory: open(Memory, files.memory),
            peak,
            oom: open(Memory, files.oom),
            pids: open(Pids, "pids.current"),
            thread_list: path(CpuAccounting, files.threads),
            peak_resets: AtomicBool::new(true),
            earlier_peak: AtomicI64::new(0),
        }
    }

    /// Reads all of them: 6 accesses on version 1, 4 on version 2.
    #[must_use]
    pub fn read_all(&self) -> Readings {
        let stat = |text: &str| Some((Throttling::parse(text), Bursts::parse(text)));
        // On version 2 one file has all of the CPU's.
        let (cpu, stat) = match &self.stat {
            Some(file) => (self.cpu(), pread(file, stat)),
            None => self
                .cpu
                .as_ref()
                .and_then(|file| pread(file, |text| Some((self.parse_cpu(text), stat(text)))))
                .unwrap_or_default(),
        };
        let (throttling, bursts) = stat.unwrap_or_default();
        Readings {
            cpu,
            throttling,
            bursts,
            memory: self.memory(),
            peak: self.peak(),
            oom_kills: self.oom_kills(),
        }
    }

    /// CPU time: 2 accesses on version 1, 1 on version 2.
    #[must_use]
    pub fn cpu(&self) -> Option<Cpu> {
        pread(self.cpu.as_ref()?, |text| self.parse_cpu(text))
    }

    /// How CPU time of which so many ns were read just before is divided, with one access.
    #[must_use]
    pub fn cpu_divided(&self, total: i64) -> Option<Cpu> {
        let Some(split) = &self.cpu_split else { return Some(Cpu { total, ..self.cpu()? }) };
        let (user, system) = pread(split, sum_over_cpus)?;
        Some(Cpu { total, user, system })
    }

    /// CPU time in all, in ns, with one access.
    #[must_use]
    pub fn cpu_total(&self) -> Option<i64> {
        Some(pread(self.cpu.as_ref()?, |text| self.interface.parse_cpu(text))?.total)
    }

    /// [`Self::cpu_total`] and [`Self::throttling`]: with one access where one file has both, as on
    /// version 2.
    #[must_use]
    pub fn cpu_total_and_throttling(&self) -> (Option<i64>, Option<Throttling>) {
        if self.stat.is_some() {
            return (self.cpu_total(), self.throttling());
        }
        let both = |text: &str| {
            let cpu = self.interface.parse_cpu(text).map(|cpu| cpu.total);
            Some((cpu, Throttling::parse(text)))
        };
        self.cpu.as_ref().and_then(|file| pread(file, both)).unwrap_or_default()
    }

    /// Whether throttling is in a file of its own, so that it takes an access of its own.
    #[must_use]
    pub fn has_throttling_file(&self) -> bool {
        self.stat.is_some()
    }

    fn parse_cpu(&self, text: &str) -> Option<Cpu> {
        let cpu = self.interface.parse_cpu(text)?;
        let split = self.cpu_split.as_ref().and_then(|file| pread(file, sum_over_cpus));
        Some(split.map_or(cpu, |(user, system)| Cpu { user, system, ..cpu }))
    }

    /// How often and how long the group was throttled.
    #[must_use]
    pub fn throttling(&self) -> Option<Throttling> {
        Throttling::read(self.stat.as_ref().or(self.cpu.as_ref())?)
    }

    /// Memory in use now, in bytes: anonymous memory, `/tmp`, kernel memory, and the page cache of
    /// files that this group was the first to read. Buffers of sockets on version 2 only.
    #[must_use]
    pub fn memory(&self) -> Option<i64> {
        pread(self.memory.as_ref()?, number)
    }

    /// The most memory in use since [`Self::reset_peak`]. Where the kernel keeps it for the group's whole life, it is
    /// known if there was never more, and else `None`.
    #[must_use]
    pub fn peak(&self) -> Option<i64> {
        let peak = pread(self.peak.as_ref()?, number)?;
        let is_of_now = self.peak_resets.load(Ordering::Relaxed)
            || peak > self.earlier_peak.load(Ordering::Relaxed);
        is_of_now.then_some(peak)
    }

    /// Begins [`Self::peak`] anew.
    pub fn reset_peak(&self) {
        let Some(mut peak) = self.peak.as_ref() else { return };
        if self.peak_resets.load(Ordering::Relaxed) {
            if peak.write_all(b"0").is_ok() {
                return;
            }
            self.peak_resets.store(false, Ordering::Relaxed);
        }
        if let Some(earlier) = pread(peak, number) {
            self.earlier_peak.store(earlier, Ordering::Relaxed);
        }
    }

    /// How many threads the group has.
    #[must_use]
    pub fn threads(&self) -> Option<i64> {
        pread(self.pids.as_ref()?, number)
    }

    /// How many processes of the group the kernel has killed for lack of memory.
    #[must_use]
    pub fn oom_kills(&self) -> Option<i64> {
        pread(self.oom.as_ref()?, |text| keyed(text, "oom_kill"))
    }
}

/// User and system time of all CPUs, from `cpuacct.usage_all`: a heading, then a line for each CPU
/// with its number and the two times.
fn sum_over_cpus(text: &str) -> Option<(i64, i64)> {
    text.lines().skip(1).try_fold((0_i64, 0_i64), |(user, system), line| {
        let mut times = line.split_ascii_whitespace().skip(1).map(str::parse::<i64>);
        let mut add = |sum: i64| sum.checked_add(times.next()?.ok()?);
        Some((add(user)?, add(system)?))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        let stat = "nr_periods 9\nnr_throttled 4\nthrottled_time 5001\nnr_bursts 2\nburst_time 7\n";
        let (_folder, counters) = counters(
            Version::V1,
            &[
                ("cpuacct.usage", "123456789\n"),
                ("cpuacct.usage_all", "cpu user system\n0 60000000 20000000\n1 40000000 0\n"),
                ("cpu.stat", stat),
                ("memory.usage_in_bytes", "4096\n"),
                ("memory.max_usage_in_bytes", "8192\n"),
                ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
                ("pids.current", "3\n"),
            ],
        );
        let readings = Readings {
            cpu: Some(Cpu { total: 123_456_789, user: 100_000_000, system: 20_000_000 }),
            throttling: Some(Throttling { periods: 9, count: 4, ns: 5_001 }),
            bursts: Some(Bursts { count: 2, ns: 7 }),
            memory: Some(4096),
            peak: Some(8192),
            oom_kills: Some(2),
        };
        assert_eq!(counters.read_all(), readings);
        assert_eq!((counters.cpu(), counters.throttling()), (readings.cpu, readings.throttling));
        assert_eq!(counters.cpu_total(), Some(123_456_789));
        assert_eq!(counters.cpu_divided(123_456_789), readings.cpu);
        let together = (Some(123_456_789), readings.throttling);
        assert_eq!(counters.cpu_total_and_throttling(), together);
        assert_eq!(counters.threads(), Some(3));
    }

    #[test]
    fn version_2_counts_microseconds() {
        let stat = "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 1\nnr_throttled 1\n\
                    throttled_usec 7\nnr_bursts 0\nburst_usec 3\n";
        let (_folder, counters) = counters(
            Version::V2,
            &[
                ("cpu.stat", stat),
                ("memory.current", "1\n"),
                ("memory.peak", "2\n"),
                ("memory.events", "low 0\nhigh 0\nmax 5\noom 1\noom_kill 1\n"),
            ],
        );
        let readings = Readings {
            cpu: Some(Cpu { total: 30_000, user: 20_000, system: 10_000 }),
            throttling: Some(Throttling { periods: 1, count: 1, ns: 7_000 }),
            bursts: Some(Bursts { count: 0, ns: 3_000 }),
            memory: Some(1),
            peak: Some(2),
            oom_kills: Some(1),
        };
        assert_eq!(counters.read_all(), readings);
        assert_eq!((counters.cpu(), counters.throttling()), (readings.cpu, readings.throttling));
        let together = (Some(30_000), readings.throttling);
        assert_eq!(counters.cpu_total_and_throttling(), together);
        assert_eq!(counters.cpu_divided(30_000), readings.cpu);
    }

    #[test]
    fn a_peak_of_the_whole_life_is_known_where_it_is_a_new_one() {
        let (folder, counters) = counters(Version::V2, &[("memory.peak", "20\n")]);
        // As kernels do before 6.12.
        counters.peak_resets.store(false, Ordering::Relaxed);
        assert_eq!(counters.peak(), Some(20));
        counters.reset_peak();
        assert_eq!(counters.peak(), None);
        std::fs::write(folder.path().join("memory.peak"), "30\n").unwrap();
        assert_eq!(counters.peak(), Some(30));
        counters.reset_peak();
        assert_eq!(counters.peak(), None);
    }

    #[test]
    fn what_is_missing_is_none() {
        let (_folder, bare) =
            counters(Version::V2, &[("cpu.stat", "usage_usec 30\nuser_usec 20\nsystem_usec 10\n")]);
        let cpu = Some(Cpu { total: 30_000, user: 20_000, system: 10_000 });
        assert_eq!(bare.read_all(), Readings { cpu, ..Readings::default() });
        assert_eq!(bare.threads(), None);
        let none = Counters::open(Version::V1, |_| None);
        assert_eq!(none.cpu_total_and_throttling(), (None, None));
        assert_eq!(none.read_all(), Readings::default());
    }

    proptest! {
        #[test]
        fn the_text_of_cpu_stat_is_read_as_the_kernel_writes_it(
            periods in 0_i64.., count in 0_i64.., us in 0..i64::MAX / 1_000, other in any::<u64>(),
        ) {
            let throttling = |ns| Some(Throttling { periods, count, ns });
            let counts = format!("nr_periods {periods}\nnr_throttled {count}\n");
            let classic = format!("{counts}throttled_time {us}\nnr_bursts {other}\n");
            prop_assert_eq!(Throttling::parse(&classic), throttling(us));
            let unified = format!("usage_usec {other}\n{counts}throttled_usec {us}\n");
            prop_assert_eq!(Throttling::parse(&unified), throttling(us * 1_000));
            prop_assert_eq!(Throttling::parse(&counts), None);
        }

        #[test]
        fn user_and_system_are_summed_over_cpus(
            times in proptest::collection::vec((0_i64..1 << 50, 0_i64..1 << 50), 0..200),
        ) {
            let lines = times.iter().enumerate();
            let lines: String = lines.map(|(cpu, (u, s))| format!("{cpu} {u} {s}\n")).collect();
            let sums = times.iter().fold((0, 0), |sums, it| (sums.0 + it.0, sums.1 + it.1));
            prop_assert_eq!(sum_over_cpus(&format!("cpu user system\n{lines}")), Some(sums));
        }

        #[test]
        fn no_text_breaks_the_parsers(text in "(?s).{0,100}") {
            let _ = sum_over_cpus(&text);
            let _ = Throttling::parse(&text);
            let _ = Bursts::parse(&text);
            let _ = Version::V1.interface().parse_cpu(&text);
            let _ = Version::V2.interface().parse_cpu(&text);
        }
    }
}
