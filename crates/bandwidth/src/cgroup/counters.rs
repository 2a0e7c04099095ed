//! What the kernel counts of a group.

use std::path::{Path, PathBuf};

use uncia_cgroup::{Throttling, keyed, read};

use super::{CgroupError, NS_PER_US, Version};

/// Everything that the kernel counts of a group; what it does not is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    pub throttling: Option<Throttling>,
    pub usage_ns: Option<u64>,
    pub bursts: Option<u64>,
    pub burst_ns: Option<u64>,
}

/// The files that a group is read from.
#[derive(Debug, Clone)]
pub struct Counters {
    version: Version,
    stat: PathBuf,
    usage: Option<PathBuf>,
}

impl Counters {
    pub(super) fn new(version: Version, cpu: &Path, accounting: Option<&Path>) -> Self {
        let usage = match version {
            Version::V1 => accounting.map(|folder| folder.join("cpuacct.usage")),
            Version::V2 => None,
        };
        Self { version, stat: cpu.join("cpu.stat"), usage }
    }

    /// The file with the counts of throttling, for a process that reads it itself.
    #[must_use]
    pub fn stat(&self) -> &Path {
        &self.stat
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// A file of the group cannot be read.
    pub fn read(&self) -> Result<Reading, CgroupError> {
        let text = read(&self.stat)?;
        let usage_ns = match &self.usage {
            Some(path) => read(path)?.trim().parse().ok(),
            None => keyed(&text, "usage_usec").map(|us: u64| us * NS_PER_US),
        };
        let burst_ns = match self.version {
            Version::V1 => keyed(&text, "burst_time"),
            Version::V2 => keyed(&text, "burst_usec").map(|us: u64| us * NS_PER_US),
        };
        let throttling = Throttling::parse(&text);
        Ok(Reading { throttling, usage_ns, bursts: keyed(&text, "nr_bursts"), burst_ns })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn version_1() {
        let stat = "nr_periods 9\nnr_throttled 4\nthrottled_time 5001\nnr_bursts 2\nburst_time 7\n";
        let folder = folder(&[("cpu.stat", stat), ("cpuacct.usage", "123456789\n")]);
        let counters = Counters::new(Version::V1, folder.path(), Some(folder.path()));
        let throttling = Throttling { periods: 9, throttled: 4, throttled_ns: 5_001 };
        let expected = Reading {
            throttling: Some(throttling),
            usage_ns: Some(123_456_789),
            bursts: Some(2),
            burst_ns: Some(7),
        };
        assert_eq!(counters.read().unwrap(), expected);
        assert_eq!(Throttling::read(&File::open(counters.stat()).unwrap()), Some(throttling));
        let without = Counters::new(Version::V1, folder.path(), None).read().unwrap();
        assert_eq!(without.usage_ns, None);
    }

    #[test]
    fn version_2_counts_microseconds() {
        let stat = "usage_usec 30\nuser_usec 20\nsystem_usec 10\nnr_periods 1\nnr_throttled 1\n\
                    throttled_usec 7\nnr_bursts 0\nburst_usec 3\n";
        let folder = folder(&[("cpu.stat", stat)]);
        let read = Counters::new(Version::V2, folder.path(), None).read().unwrap();
        assert_eq!(
            read.throttling,
            Some(Throttling { periods: 1, throttled: 1, throttled_ns: 7_000 })
        );
        assert_eq!((read.usage_ns, read.burst_ns), (Some(30_000), Some(3_000)));
    }

    #[test]
    fn what_is_not_counted_is_none() {
        let folder = folder(&[("cpu.stat", "usage_usec 30\n")]);
        let read = Counters::new(Version::V2, folder.path(), None).read().unwrap();
        assert_eq!((read.throttling, read.bursts, read.burst_ns), (None, None, None));
        assert!(Counters::new(Version::V2, Path::new("/absent"), None).read().is_err());
    }
}
