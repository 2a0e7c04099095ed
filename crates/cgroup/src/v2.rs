//! Version 2: one tree for all controllers.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::files::{keyed, read, write, write_if_present};
use crate::interface::{CounterFiles, Interface};
use crate::{Controller, Cpu, Error};

const COUNTERS: CounterFiles = CounterFiles {
    cpu: "cpu.stat",
    cpu_split: None,
    stat: None,
    memory: "memory.current",
    peak: "memory.peak",
    oom: "memory.events",
    threads: "cgroup.threads",
};

#[derive(Debug)]
pub(crate) struct V2;

impl Interface for V2 {
    fn join_file(&self) -> &'static str {
        "cgroup.procs"
    }

    fn quota_file(&self) -> &'static str {
        "cpu.max"
    }

    fn burst_file(&self) -> &'static str {
        "cpu.max.burst"
    }

    fn write_quota(&self, folder: &Path, quota_us: u64, period_us: u64) -> Result<(), Error> {
        write(&folder.join(self.quota_file()), &format!("{quota_us} {period_us}"))
    }

    fn quota(&self, folder: &Path) -> Option<(u64, u64)> {
        let text = read(&folder.join(self.quota_file())).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        Some((quota.parse().ok()?, period.parse().ok()?))
    }

    fn weights(&self) -> (&'static str, RangeInclusive<u64>) {
        ("cpu.weight", 1..=10_000)
    }

    fn default_weight(&self) -> u64 {
        100
    }

    fn pass_on(&self, folder: &Path, controllers: &[Controller]) -> Result<(), Error> {
        let switched = controllers.iter().filter(|it| !it.is_always_in_v2());
        let words: Vec<_> = switched.map(|it| format!("+{}", it.name())).collect();
        write(&folder.join("cgroup.subtree_control"), &words.join(" "))
    }

    fn write_memory_limit(&self, folder: &Path, bytes: u64) -> Result<(), Error> {
        // Buffers of sockets count as memory.
        write(&folder.join("memory.max"), &bytes.to_string())?;
        write_if_present(&folder.join("memory.swap.max"), "0")
    }

    fn reclaim(&self, folder: &Path) -> Result<(), Error> {
        let used = read(&folder.join("memory.current"))?;
        match write(&folder.join("memory.reclaim"), used.trim()) {
            // It gave up less than that: memory of its own cannot be had again without swap.
            Err(Error::Write { source, .. }) if source.kind() == ErrorKind::WouldBlock => Ok(()),
            other => other,
        }
    }

    fn freezer(&self, frozen: bool) -> (&'static str, &'static str) {
        ("cgroup.freeze", if frozen { "1" } else { "0" })
    }

    fn is_frozen(&self, folder: &Path) -> Result<bool, Error> {
        Ok(keyed(&read(&folder.join("cgroup.events"))?, "frozen") == Some(1_u8))
    }

    fn counter_files(&self) -> &'static CounterFiles {
        &COUNTERS
    }

    fn parse_cpu(&self, text: &str) -> Option<Cpu> {
        let ns = |key: &str| keyed::<i64>(text, key)?.checked_mul(1_000);
        Some(Cpu { total: ns("usage_usec")?, user: ns("user_usec")?, system: ns("system_usec")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_that_must_be_are_switched_on_for_groups_below() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cgroup.subtree_control");
        std::fs::write(&file, "").unwrap();
        V2.pass_on(folder.path(), &Controller::ALL).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "+cpu +memory +pids");
    }
}
