//! Version 1: a tree for each controller.

use std::ops::RangeInclusive;
use std::path::Path;

use crate::files::{number, read, write, write_if_present};
use crate::interface::{CounterFiles, Interface};
use crate::{Controller, Cpu, Error};

/// How much of its memory limit a group may have in buffers of TCP sockets. Version 1 counts them
/// beside other memory, so that they add to the limit.
const TCP_DENOMINATOR: u64 = 4;

const COUNTERS: CounterFiles = CounterFiles {
    cpu: "cpuacct.usage",
    cpu_split: Some("cpuacct.usage_all"),
    stat: Some("cpu.stat"),
    memory: "memory.usage_in_bytes",
    peak: "memory.max_usage_in_bytes",
    oom: "memory.oom_control",
    threads: "tasks",
};

#[derive(Debug)]
pub(crate) struct V1;

impl Interface for V1 {
    /// Moving by `cgroup.procs` waits for a lock that every fork on the machine takes (tens of ms at
    /// worst); `tasks` moves one thread, which is all that a process has before exec.
    fn join_file(&self) -> &'static str {
        "tasks"
    }

    fn quota_file(&self) -> &'static str {
        "cpu.cfs_quota_us"
    }

    fn burst_file(&self) -> &'static str {
        "cpu.cfs_burst_us"
    }

    fn write_quota(&self, folder: &Path, quota_us: u64, period_us: u64) -> Result<(), Error> {
        write(&folder.join("cpu.cfs_period_us"), &period_us.to_string())?;
        write(&folder.join(self.quota_file()), &quota_us.to_string())
    }

    fn write_no_quota(&self, folder: &Path) -> Result<(), Error> {
        write(&folder.join(self.quota_file()), "-1")
    }

    fn quota(&self, folder: &Path) -> Option<(u64, u64)> {
        // Without a quota it says -1.
        let read = |name: &str| number(&read(&folder.join(name)).ok()?);
        Some((read(self.quota_file())?, read("cpu.cfs_period_us")?))
    }

    fn weights(&self) -> (&'static str, RangeInclusive<u64>) {
        ("cpu.shares", 2..=262_144)
    }

    fn default_weight(&self) -> u64 {
        1_024
    }

    /// Each tree has its controller everywhere.
    fn pass_on(&self, _folder: &Path, _controllers: &[Controller]) -> Result<(), Error> {
        Ok(())
    }

    fn write_memory_limit(&self, folder: &Path, bytes: u64) -> Result<(), Error> {
        let limit = bytes.to_string();
        write(&folder.join("memory.limit_in_bytes"), &limit)?;
        // Memory and swap together, so that nothing is left for swap.
        write_if_present(&folder.join("memory.memsw.limit_in_bytes"), &limit)?;
        write_if_present(&folder.join("memory.swappiness"), "0")?;
        // Counts sockets made from now on, so it must be set before any process joins.
        let tcp = (bytes / TCP_DENOMINATOR).to_string();
        write_if_present(&folder.join("memory.kmem.tcp.limit_in_bytes"), &tcp)
    }

    fn reclaim(&self, folder: &Path, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
        // All of it is one piece. It tries some times, and tells nobody what is left.
        if goes_on() { write(&folder.join("memory.force_empty"), "0") } else { Ok(()) }
    }

    fn freezer(&self, frozen: bool) -> (&'static str, &'static str) {
        ("freezer.state", if frozen { "FROZEN" } else { "THAWED" })
    }

    fn is_frozen(&self, folder: &Path) -> Result<bool, Error> {
        Ok(read(&folder.join("freezer.state"))?.trim() == "FROZEN")
    }

    fn counter_files(&self) -> &'static CounterFiles {
        &COUNTERS
    }

    fn parse_cpu(&self, text: &str) -> Option<Cpu> {
        Some(Cpu { total: number(text)?, ..Cpu::default() })
    }
}
