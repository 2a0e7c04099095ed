//! CPU time by CPU, which version 1 alone counts.

use std::fs::File;
use std::path::Path;

use crate::files::pread;

/// The CPU time of a group and all below it, on each CPU.
#[derive(Debug)]
pub struct PerCpu(File);

impl PerCpu {
    /// Opens the account of the group in this folder; None where the kernel keeps none (version 2).
    #[must_use]
    pub fn open(folder: &Path) -> Option<Self> {
        let account = Self(File::open(folder.join("cpuacct.usage_percpu")).ok()?);
        account.read().map(|_| account)
    }

    /// The CPU time in ns of each CPU, from 0 on. Once the group is gone, None.
    #[must_use]
    pub fn read(&self) -> Option<Vec<i64>> {
        pread(&self.0, |text| {
            let counts = text.split_ascii_whitespace().map(|count| count.parse().ok());
            counts.collect::<Option<Vec<i64>>>().filter(|counts| !counts.is_empty())
        })
    }
}
