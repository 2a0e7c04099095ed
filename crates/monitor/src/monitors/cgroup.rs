//! What each control group used: CPU time, throttles, memory by kind, kills for lack of it, threads.

use std::fs::File;
use std::os::unix::fs::FileExt;

use uncia_cgroup::{Controller, Counters as Files, Version};
use uncia_record::Text;

use super::{Monitor, keyed};
use crate::groups::{GroupPath, Watched};
use crate::samples::{Counters, Samples};

/// Longer than any `memory.stat`.
const MOST_BYTES: usize = 16 * 1024;
/// Counters that only grow.
const GROWING: [&str; 7] = [
    "cgroup.cpu_ns",
    "cgroup.cpu_user_ns",
    "cgroup.cpu_system_ns",
    "cgroup.periods_count",
    "cgroup.throttled_count",
    "cgroup.throttled_ns",
    "cgroup.oom_kills_count",
];
/// Kinds of memory: the counter, and the key in `memory.stat` of versions 1 and 2.
const KINDS: [(&str, &str, &str); 5] = [
    ("cgroup.memory_anonymous_bytes", "total_rss", "anon"),
    ("cgroup.memory_file_bytes", "total_cache", "file"),
    ("cgroup.memory_shared_bytes", "total_shmem", "shmem"),
    ("cgroup.memory_mapped_bytes", "total_mapped_file", "file_mapped"),
    ("cgroup.memory_kernel_bytes", "", "kernel"),
];

/// Reads the files of groups.
pub(super) struct Cgroup(Watched<Group>);

impl Cgroup {
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        let mut groups = Watched::new(patterns)?;
        groups.search_only(None, &["cpu", "cpuacct", "memory", "pids"]);
        if !groups.has_trees() {
            return Err("no tree of control groups is mounted at a place that is seen from here \
                        (usually /sys/fs/cgroup)"
                .to_owned());
        }
        if patterns.is_empty() {
            return Err("no control group is named: give patterns such as /docker/*".to_owned());
        }
        Ok(Self(groups))
    }
}

impl Monitor for Cgroup {
    fn sample(&mut self, samples: &mut Samples) {
        let before = samples.before;
        let sentences = self.0.look(|group_path, is_new| {
            let mut group = Group::open(group_path);
            if let Some(before) = before.filter(|_| is_new) {
                for counter in GROWING {
                    group.counters.set(counter, 0, before);
                }
            }
            Some(group)
        });
        samples.warnings.extend(sentences);
        for (name, group) in self.0.iter_mut() {
            group.sample(name, samples);
        }
    }
}

/// The open files of one group.
struct Group {
    files: Files,
    /// Where no tree of version 1 accounts its CPU time.
    unified: Option<Files>,
    memory: Option<File>,
    /// Whether `memory` is of version 2.
    is_unified_memory: bool,
    counters: Counters,
}

impl Group {
    fn open(group_path: &GroupPath) -> Self {
        let controllers = [Controller::Cpu, Controller::CpuAccounting, Controller::Memory];
        let classic: Vec<_> = controllers
            .into_iter()
            .chain([Controller::Pids])
            .filter_map(|it| Some((it, group_path.classic(it.name())?)))
            .collect();
        let of = |controller| {
            classic.iter().find(|(it, _)| *it == controller).map(|(_, folder)| folder.as_path())
        };
        let folder = group_path.unified();
        let memory = |folder: &std::path::Path| File::open(folder.join("memory.stat")).ok();
        let classic_memory = of(Controller::Memory).and_then(memory);
        Self {
            files: Files::open(Version::V1, of),
            unified: folder.as_deref().map(|it| Files::open(Version::V2, |_| Some(it))),
            is_unified_memory: classic_memory.is_none(),
            memory: classic_memory.or_else(|| folder.as_deref().and_then(memory)),
            counters: Counters::default(),
        }
    }

    fn sample(&mut self, name: &Text, samples: &mut Samples) {
        let read = self.files.read_all();
        let other = self.unified.as_ref().map(Files::read_all).unwrap_or_default();
        let cpu = read.cpu.or(other.cpu);
        let throttling = read.throttling.or(other.throttling);
        let values = [
            cpu.map(|it| it.total),
            cpu.map(|it| it.user),
            cpu.map(|it| it.system),
            throttling.map(|it| it.periods),
            throttling.map(|it| it.count),
            throttling.map(|it| it.ns),
            read.oom_kills.or(other.oom_kills),
        ];
        for (counter, value) in GROWING.into_iter().zip(values) {
            let grown = self.counters.grown(counter, value, samples.now);
            samples.growth(Some(name), counter, grown);
        }
        let threads = self.files.threads().or_else(|| self.unified.as_ref()?.threads());
        let levels = [
            ("cgroup.memory_bytes", read.memory.or(other.memory)),
            ("cgroup.memory_peak_bytes", read.peak.or(other.peak)),
            ("cgroup.threads_count", threads),
        ];
        for (counter, value) in levels {
            samples.level(Some(name), counter, value.map(|it| it as f64));
        }
        let Some(text) = self.memory.as_ref().and_then(read_whole) else { return };
        for (counter, classic, unified) in KINDS {
            let key = if self.is_unified_memory { unified } else { classic };
            samples.level(Some(name), counter, keyed(&text, key).map(|it| it as f64));
        }
    }
}

/// The text of a control file that stays open; `None` once its group is gone.
fn read_whole(file: &File) -> Option<String> {
    let mut bytes = vec![0; MOST_BYTES];
    let length = file.read_at(&mut bytes, 0).ok()?;
    bytes.truncate(length);
    String::from_utf8(bytes).ok()
}
