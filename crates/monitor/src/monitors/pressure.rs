//! Pressure stall information: how long some or all tasks waited for CPU, memory, input and output.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use uncia_cgroup::Version;
use uncia_record::Text;

use super::Monitor;
use crate::groups::Watched;
use crate::samples::{Counters, Samples};

/// The kernel's resources, and the counters of the time in us in which some and in which all tasks
/// waited for each.
const RESOURCES: [(&str, &str, &str); 4] = [
    ("cpu", "pressure.cpu_some_us", "pressure.cpu_full_us"),
    ("memory", "pressure.memory_some_us", "pressure.memory_full_us"),
    ("io", "pressure.io_some_us", "pressure.io_full_us"),
    ("irq", "pressure.irq_some_us", "pressure.irq_full_us"),
];
/// Longer than any of its files.
const MOST_BYTES: usize = 512;

/// Reads the machine's pressure, and that of groups in the tree of version 2.
pub(super) struct Pressure {
    machine: Stalls,
    groups: Watched<Stalls>,
}

impl Pressure {
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        let machine = Stalls::open(|resource| Path::new("/proc/pressure").join(resource));
        if !machine.is_readable() {
            return Err(
                "the kernel reports no pressure (PSI): boot one with CONFIG_PSI, with psi=1"
                    .to_owned(),
            );
        }
        let mut groups = Watched::new(patterns)?;
        groups.search_only(Some(Version::V2), &[]);
        Ok(Self { machine, groups })
    }
}

impl Monitor for Pressure {
    fn sample(&mut self, samples: &mut Samples) {
        self.machine.sample(None, samples);
        let before = samples.before;
        let sentences = self.groups.look(|group_path, is_new| {
            let folder = group_path.unified()?;
            let mut stalls = Stalls::open(|resource| folder.join(format!("{resource}.pressure")));
            if let Some(before) = before.filter(|_| is_new) {
                stalls.begin(before);
            }
            Some(stalls)
        });
        samples.warnings.extend(sentences);
        for (group, stalls) in self.groups.iter_mut() {
            stalls.sample(Some(group), samples);
        }
    }
}

/// The files of a group, or of the machine.
struct Stalls {
    files: Vec<(File, &'static str, &'static str)>,
    counters: Counters,
}

impl Stalls {
    fn open(path: impl Fn(&str) -> PathBuf) -> Self {
        let files = RESOURCES.iter().filter_map(|(resource, some, full)| {
            Some((File::open(path(resource)).ok()?, *some, *full))
        });
        Self { files: files.collect(), counters: Counters::default() }
    }

    /// Whether the kernel really counts: without psi=1 the files may be there and not be readable.
    fn is_readable(&self) -> bool {
        self.files.iter().any(|(file, _, _)| read(file).is_some())
    }

    /// A group that was not there yet had waited for nothing.
    fn begin(&mut self, at: i64) {
        for (_, some, full) in &self.files {
            self.counters.set(some, 0, at);
            self.counters.set(full, 0, at);
        }
    }

    fn sample(&mut self, group: Option<&Text>, samples: &mut Samples) {
        for (file, some, full) in &self.files {
            let Some(text) = read(file) else { continue };
            for (counter, line) in [(*some, "some"), (*full, "full")] {
                let grown = self.counters.grown(counter, total(&text, line), samples.now);
                samples.growth(group, counter, grown);
            }
        }
    }
}

fn read(file: &File) -> Option<String> {
    let mut bytes = [0; MOST_BYTES];
    let length = file.read_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes[..length].to_vec()).ok()
}

/// The total of a line such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=9", in us.
pub(super) fn total(text: &str, kind: &str) -> Option<i64> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(kind))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_as_the_kernel_writes_them() {
        let text = "some avg10=1.47 avg60=1.24 avg300=0.51 total=87108608\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!((total(text, "some"), total(text, "full")), (Some(87_108_608), Some(9)));
        assert_eq!(total("full avg10=0.00 total=1\n", "some"), None);
        assert_eq!(total("some total=x\n", "some"), None);
    }
}
