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

/// Memory that is given up at a time: some milliseconds of the kernel's work.
const PIECE_BYTES: u64 = 8 << 20;

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

    fn write_no_quota(&self, folder: &Path) -> Result<(), Error> {
        write(&folder.join(self.quota_file()), "max")
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

    fn reclaim(&self, folder: &Path, goes_on: &dyn Fn() -> bool) -> Result<(), Error> {
        let file = folder.join("memory.reclaim");
        let used: u64 = read(&folder.join("memory.current"))?.trim().parse().unwrap_or(0);
        // As many pieces as there can be: what others charge to the group meanwhile is not waited for.
        for _ in 0..used.div_ceil(PIECE_BYTES) {
            if !goes_on() {
                break;
            }
            match write(&file, &PIECE_BYTES.to_string()) {
                // It gave up less than that: memory of its own cannot be had again without swap.
                Err(Error::Write { source, .. }) if source.kind() == ErrorKind::WouldBlock => break,
                other => other?,
            }
        }
        Ok(())
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
    fn memory_is_given_up_piece_by_piece_for_as_long_as_it_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let current = (3 * PIECE_BYTES - 1).to_string();
        std::fs::write(folder.path().join("memory.current"), format!("{current}\n")).unwrap();
        let reclaim = folder.path().join("memory.reclaim");
        std::fs::write(&reclaim, "").unwrap();
        let asked = std::cell::Cell::new(0);
        let goes_on = |most: u32| {
            asked.set(0);
            let asked = &asked;
            move || {
                asked.set(asked.get() + 1);
                asked.get() <= most
            }
        };
        V2.reclaim(folder.path(), &goes_on(0)).unwrap();
        assert_eq!(std::fs::read_to_string(&reclaim).unwrap(), "");
        V2.reclaim(folder.path(), &goes_on(2)).unwrap();
        assert_eq!(asked.get(), 3);
        V2.reclaim(folder.path(), &goes_on(9)).unwrap();
        assert_eq!(asked.get(), 3);
        assert_eq!(std::fs::read_to_string(reclaim).unwrap(), PIECE_BYTES.to_string());
    }

    #[test]
    fn controllers_that_must_be_are_switched_on_for_groups_below() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cgroup.subtree_control");
        std::fs::write(&file, "").unwrap();
        V2.pass_on(folder.path(), &Controller::ALL).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "+cpu +memory +pids");
    }
}
