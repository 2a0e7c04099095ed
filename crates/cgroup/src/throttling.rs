//! What the kernel counts of a group's throttling.

use std::fs::File;

use crate::{keyed, pread};

const NS_PER_US: u64 = 1_000;

/// How often and how long a group was throttled since it was made.
///
/// The kernel counts periods at whose end the group was throttled, not throttles: one that lasts for
/// three periods counts three times (`do_sched_cfs_period_timer`, kernel/sched/fair.c).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttling {
    pub periods: u64,
    pub throttled: u64,
    pub throttled_ns: u64,
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
        Some(Self {
            periods: keyed(text, "nr_periods")?,
            throttled: keyed(text, "nr_throttled")?,
            throttled_ns: keyed(text, "throttled_time")
                .or_else(|| keyed(text, "throttled_usec").map(|us: u64| us * NS_PER_US))?,
        })
    }

    /// What was added since an earlier reading.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(before.periods),
            throttled: self.throttled.saturating_sub(before.throttled),
            throttled_ns: self.throttled_ns.saturating_sub(before.throttled_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_count_in_ns_here() {
        let classic = "nr_periods 9\nnr_throttled 4\nthrottled_time 5001\n";
        let unified = "usage_usec 30\nnr_periods 9\nnr_throttled 4\nthrottled_usec 7\n";
        let counts = |throttled_ns| Throttling { periods: 9, throttled: 4, throttled_ns };
        assert_eq!(Throttling::parse(classic), Some(counts(5_001)));
        assert_eq!(Throttling::parse(unified), Some(counts(7_000)));
        assert_eq!(Throttling::parse("usage_usec 30\n"), None, "without the controller cpu");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cpu.stat"), classic).unwrap();
        let file = File::open(folder.path().join("cpu.stat")).unwrap();
        assert_eq!(Throttling::read(&file), Some(counts(5_001)));
        let since = counts(7_000).since(counts(5_001));
        assert_eq!(since, Throttling { throttled_ns: 1_999, ..Throttling::default() });
    }
}
