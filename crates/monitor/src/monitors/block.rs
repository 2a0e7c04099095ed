//! What was read from and written to disks: bytes, operations and how long they took, by device and
//! group.
//!
//! Counts are the kernel's: of the machine in /proc/diskstats, of groups in the files of version 1's
//! blkio or version 2's io. Latencies are of tracepoints, where the kernel has them: from a request's issue
//! to a device to its completion.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use uncia_cgroup::{Hit, TraceFiles, TraceRing, Tracepoint};
use uncia_record::Text;

use super::Monitor;
use super::perf::{folder, online};
use crate::groups::{GroupPath, Watched};
use crate::samples::{Grown, Samples};

const SECTOR_BYTES: i64 = 512;
const NS_PER_MS: i64 = 1_000_000;
/// Requests whose completion was not seen yet; beyond, all are forgotten.
const MOST_IN_FLIGHT: usize = 65_536;
/// Bins of a histogram in each doubling: an error of an eighth at most.
const BINS_LOG2: u32 = 3;
/// Files of version 1, the first that is there: bytes, operations. The first two count a group's own
/// and below.
const CLASSIC: [(&str, &str); 2] = [
    ("blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_serviced_recursive"),
    ("blkio.throttle.io_service_bytes", "blkio.throttle.io_serviced"),
];

/// Reads counters of devices, and traces requests.
pub(super) struct Block {
    machine: Totals,
    groups: Watched<Group>,
    trace: Option<Trace>,
    /// Sentences for the first sample.
    notes: Vec<String>,
}

/// What a monitor holds of a group.
#[derive(Default)]
struct Group {
    classic: Option<std::path::PathBuf>,
    unified: Option<std::path::PathBuf>,
    /// Its number in traces: that of version 1's tree of events, where there is one.
    inode: Option<u64>,
    totals: Totals,
}

impl Block {
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        fs::read_to_string("/proc/diskstats")
            .map_err(|error| format!("/proc/diskstats cannot be read: {error}"))?;
        let mut groups = Watched::new(patterns)?;
        groups.search_only(None, &["blkio", "perf_event"]);
        let mut notes = Vec::new();
        let trace = Trace::open();
        if let Err(why) = &trace {
            notes.push(format!("latencies of requests are not supported on this machine: {why}"));
        }
        Ok(Self { machine: Totals::default(), groups, trace: trace.ok(), notes })
    }
}

impl Monitor for Block {
    fn sample(&mut self, samples: &mut Samples) {
        samples.warnings.append(&mut self.notes);
        if let Ok(text) = fs::read_to_string("/proc/diskstats") {
            self.machine.add_growth(None, devices(&text), samples);
        }
        let before = samples.before;
        let sentences = self
            .groups
            .look(|group_path, is_new| Some(Group::find(group_path, before.filter(|_| is_new))));
        samples.warnings.extend(sentences);
        let mut names = HashMap::new();
        for (name, group) in self.groups.iter_mut() {
            let counts = group.counts();
            group.totals.add_growth(Some(name), counts, samples);
            names.extend(group.inode.map(|inode| (inode, name.clone())));
        }
        if let Some(trace) = &mut self.trace {
            trace.add(&names, samples);
        }
    }
}

impl Group {
    fn find(group_path: &GroupPath, began: Option<i64>) -> Self {
        let unified = group_path.unified();
        let inode = folder(group_path).and_then(|folder| Some(fs::metadata(folder).ok()?.ino()));
        let totals = Totals { began, ..Totals::default() };
        Self { classic: group_path.classic("blkio"), unified, inode, totals }
    }

    /// By device and counter, what the kernel counted so far.
    fn counts(&self) -> Vec<(String, &'static str, i64)> {
        let in_classic = self.classic.iter().flat_map(|folder| {
            let read = |name| fs::read_to_string(folder.join(name)).ok();
            let pair =
                CLASSIC.iter().find_map(|(bytes, counts)| Some((read(bytes)?, read(counts)?)));
            let (bytes, counts) = pair.unwrap_or_default();
            classic(&bytes, ["read_bytes", "write_bytes", "discard_bytes"])
                .chain(classic(&counts, ["read_count", "write_count", "discard_count"]))
                .collect::<Vec<_>>()
        });
        let found: Vec<_> = in_classic.collect();
        if !found.is_empty() {
            return found;
        }
        let text = self.unified.as_ref().and_then(|it| fs::read_to_string(it.join("io.stat")).ok());
        unified(&text.unwrap_or_default()).collect()
    }
}

/// Counters by device as they were read last.
#[derive(Default)]
struct Totals {
    values: HashMap<(String, &'static str), i64>,
    /// When they were read last.
    read: Option<i64>,
    /// When all stood at 0, of a group that was not there before.
    began: Option<i64>,
}

impl Totals {
    /// Adds what counters grew by. One that comes after others of its group stood at 0.
    fn add_growth(
        &mut self,
        group: Option<&Text>,
        counts: Vec<(String, &'static str, i64)>,
        samples: &mut Samples,
    ) {
        let since = self.read.or(self.began);
        for (device, counter, value) in counts {
            let name = format!("block.{device}.{counter}");
            let before = self.values.insert((device, counter), value).unwrap_or_default();
            let Some(since) = since.filter(|since| value >= before && samples.now > *since) else {
                continue;
            };
            let grown = Grown { value: (value - before) as f64, interval: samples.now - since };
            samples.growth(group, &name, Some(grown));
        }
        self.read = Some(samples.now);
    }
}

/// Counters of devices that were used, in the text of /proc/diskstats; partitions are within their disks.
fn devices(text: &str) -> Vec<(String, &'static str, i64)> {
    let mut counts = Vec::new();
    for line in text.lines() {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        let [major, minor, name, numbers @ ..] = fields.as_slice() else { continue };
        let number = |index: usize| numbers.get(index)?.parse::<i64>().ok();
        if !std::path::Path::new("/sys/block").join(name.replace('/', "!")).is_dir() {
            continue;
        }
        let all = [
            ("read_count", number(0)),
            ("read_bytes", number(2).map(|it| it * SECTOR_BYTES)),
            ("read_wait_ns", number(3).map(|it| it * NS_PER_MS)),
            ("write_count", number(4)),
            ("write_bytes", number(6).map(|it| it * SECTOR_BYTES)),
            ("write_wait_ns", number(7).map(|it| it * NS_PER_MS)),
            ("busy_ns", number(9).map(|it| it * NS_PER_MS)),
            ("discard_count", number(11)),
            ("discard_bytes", number(13).map(|it| it * SECTOR_BYTES)),
        ];
        if all.iter().all(|(_, value)| value.unwrap_or_default() == 0) {
            continue;
        }
        let device = format!("{major}_{minor}");
        counts.extend(
            all.into_iter().filter_map(|(counter, value)| Some((device.clone(), counter, value?))),
        );
    }
    counts
}

/// Lines such as "8:0 Read 4096" of version 1, as these counters.
fn classic(
    text: &str,
    [read, write, discard]: [&'static str; 3],
) -> impl Iterator<Item = (String, &'static str, i64)> {
    text.lines().filter_map(move |line| {
        let mut words = line.split(' ');
        let (device, kind) = (words.next()?, words.next()?);
        let counter = match kind {
            "Read" => read,
            "Write" => write,
            "Discard" => discard,
            _ => return None,
        };
        Some((device.replace(':', "_"), counter, words.next()?.parse().ok()?))
    })
}

/// Lines such as "8:0 rbytes=4096 rios=1" of version 2.
fn unified(text: &str) -> impl Iterator<Item = (String, &'static str, i64)> {
    text.lines().flat_map(|line| {
        let (device, counts) = line.split_once(' ').unwrap_or_default();
        counts.split(' ').filter_map(move |count| {
            let (key, value) = count.split_once('=')?;
            let counter = match key {
                "rbytes" => "read_bytes",
                "wbytes" => "write_bytes",
                "dbytes" => "discard_bytes",
                "rios" => "read_count",
                "wios" => "write_count",
                "dios" => "discard_count",
                _ => return None,
            };
            Some((device.replace(':', "_"), counter, value.parse().ok()?))
        })
    })
}

/// Listens to requests, and measures how long they take.
struct Trace {
    rings: Vec<TraceRing>,
    issue: Fields,
    complete: Fields,
    /// Of those that devices have: when each was issued, and by which group, by device and sector.
    in_flight: HashMap<(u64, u64), (u64, u64)>,
    began: i64,
}

/// Where a tracepoint's hits have what matters.
struct Fields {
    tracepoint: Tracepoint,
    device: (usize, usize),
    sector: (usize, usize),
    kind: (usize, usize),
}

impl Fields {
    fn find(files: &TraceFiles, path: &str) -> Result<Self, String> {
        let tracepoint = files
            .tracepoint(path)
            .map_err(|error| format!("the kernel's tracepoint {path} cannot be read: {error}"))?;
        let field = |name: &str| {
            tracepoint.field(name).ok_or_else(|| format!("{path} has no field {name} here"))
        };
        Ok(Self {
            device: field("dev")?,
            sector: field("sector")?,
            kind: field("rwbs")?,
            tracepoint,
        })
    }

    /// Device and sector of a hit of this tracepoint.
    fn request(&self, hit: &Hit) -> (u64, u64) {
        (number(hit, self.device), number(hit, self.sector))
    }
}

impl Trace {
    fn open() -> Result<Self, String> {
        let files = TraceFiles::find()
            .map_err(|error| format!("there is no tracefs that can be seen: {error}"))?;
        let issue = Fields::find(&files, "block/block_rq_issue")?;
        let complete = Fields::find(&files, "block/block_rq_complete")?;
        let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let cpus = online(&cpus).ok_or("the kernel does not say which CPUs it has")?;
        let tracepoints = [&issue.tracepoint, &complete.tracepoint];
        let rings = cpus.iter().map(|cpu| TraceRing::open(&tracepoints, *cpu));
        let rings = rings
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("requests cannot be traced: {error}"))?;
        let began = uncia_clock::monotonic_ns();
        Ok(Self { rings, issue, complete, in_flight: HashMap::new(), began })
    }

    /// Adds what was completed since the last time, of the machine and of groups by their numbers.
    fn add(&mut self, names: &HashMap<u64, Text>, samples: &mut Samples) {
        let mut hits: Vec<_> = self.rings.iter_mut().flat_map(TraceRing::read).collect();
        // A request may be completed on another CPU than it was issued on.
        hits.sort_by_key(|hit| hit.time);
        samples.lost += self.rings.iter_mut().map(TraceRing::take_lost).sum::<u64>();
        let mut histograms: HashMap<(Option<Text>, String), HashMap<u64, u64>> = HashMap::new();
        for hit in hits {
            let id = number(&hit, (0, 2));
            if id == u64::from(self.issue.tracepoint.id) {
                if self.in_flight.len() >= MOST_IN_FLIGHT {
                    self.in_flight.clear();
                }
                self.in_flight.insert(self.issue.request(&hit), (hit.time, hit.group));
            } else if id == u64::from(self.complete.tracepoint.id) {
                let request = self.complete.request(&hit);
                let Some((issued, group)) = self.in_flight.remove(&request) else { continue };
                let Some(kind) = kind(&hit, self.complete.kind) else { continue };
                let device = format!("{}_{}", request.0 >> 20, request.0 & 0xf_ffff);
                let took = hit.time.saturating_sub(issued);
                let name = names.get(&group).cloned();
                for of in [None, name]
                    .into_iter()
                    .enumerate()
                    .filter(|(index, it)| *index == 0 || it.is_some())
                {
                    let counter = format!("block.{device}.{kind}");
                    *histograms
                        .entry((of.1, counter))
                        .or_default()
                        .entry(upper(took))
                        .or_default() += 1;
                }
            }
        }
        let interval = samples.now - samples.before.unwrap_or(self.began);
        for ((group, counter), bins) in histograms {
            for (upper, count) in bins {
                let name = format!("{counter}_within_{upper}ns_count");
                let grown = Grown { value: count as f64, interval };
                samples.growth(group.as_ref(), &name, Some(grown));
            }
        }
    }
}

/// A number of a hit, in the machine's order of bytes; 0 where the hit ends before it.
fn number(hit: &Hit, (at, size): (usize, usize)) -> u64 {
    let bytes = hit.fields.get(at..at + size).unwrap_or_default();
    let mut all = [0; 8];
    if let Some(place) = all.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
    u64::from_le_bytes(all)
}

/// What a request does, by its letters: `R` reads, `W` writes, `D` discards, each among others.
fn kind(hit: &Hit, (at, size): (usize, usize)) -> Option<&'static str> {
    let letters = hit.fields.get(at..at + size)?;
    letters.iter().take_while(|letter| **letter != 0).find_map(|letter| match letter {
        b'R' => Some("read"),
        b'W' => Some("write"),
        b'D' => Some("discard"),
        _ => None,
    })
}

/// The upper end of the bin that a time is in: no more than an eighth above it.
fn upper(value: u64) -> u64 {
    let bins = 1 << BINS_LOG2;
    if value < 2 * bins {
        return value;
    }
    let shift = value.ilog2() - BINS_LOG2;
    ((value >> shift) + 1) << shift
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use uncia_cgroup::Version;

    use super::*;
    use crate::groups::group_in;

    #[test]
    fn traces_know_groups_by_the_tree_of_events_where_there_is_one() {
        let top = tempfile::tempdir().unwrap();
        let [events, unified] = ["events", "unified"].map(|name| top.path().join(name));
        let number = |tree: &Path| {
            fs::create_dir_all(tree.join("g")).unwrap();
            fs::metadata(tree.join("g")).unwrap().ino()
        };
        let (of_events, of_unified) = (number(&events), number(&unified));
        let both = [(Version::V2, "io", &*unified), (Version::V1, "perf_event", &*events)];
        let known = |trees: &[_]| group_in(trees, "/g", |path| Group::find(path, None).inode);
        assert_eq!(known(&both), Some(of_events));
        assert_eq!(known(&both[..1]), Some(of_unified));
    }

    #[test]
    fn bins_end_an_eighth_above_what_is_in_them_at_most() {
        for value in (0..5_000).chain([123_456_789, u64::from(u32::MAX)]) {
            let end = upper(value);
            assert!(end >= value && (end - value) * 8 <= value.max(8), "{value} in {end}");
        }
    }

    #[test]
    fn files_are_read_as_the_kernel_writes_them() {
        let text = "8:0 Read 4096\n8:0 Write 512\n8:0 Sync 4608\n8:0 Discard 0\n8:0 Total 4608\nTotal 4608\n";
        let counters = ["read_bytes", "write_bytes", "discard_bytes"];
        let read: Vec<_> = classic(text, counters).collect();
        let of = |device: &str, counter, value| (device.to_owned(), counter, value);
        let expected = [
            of("8_0", "read_bytes", 4096),
            of("8_0", "write_bytes", 512),
            of("8_0", "discard_bytes", 0),
        ];
        assert_eq!(read, expected);
        let read: Vec<_> =
            unified("8:16 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n9:0 \n").collect();
        assert_eq!(read.len(), 6);
        assert_eq!(read.first(), Some(&of("8_16", "read_bytes", 1)));
    }

    #[test]
    fn a_device_that_comes_later_stood_at_nothing() {
        let mut totals = Totals::default();
        let mut samples = Samples { now: 10, ..Samples::default() };
        totals.add_growth(None, vec![("8_0".to_owned(), "read_bytes", 5)], &mut samples);
        assert!(samples.rows.is_empty(), "what was before is not known");
        samples.now = 20;
        let counts = vec![("8_0".to_owned(), "read_bytes", 7), ("9_0".to_owned(), "read_bytes", 3)];
        totals.add_growth(None, counts, &mut samples);
        let rows: Vec<_> = samples.rows.iter().map(|row| (&*row.counter, row.value)).collect();
        assert_eq!(rows, [("block.8_0.read_bytes", 2.0), ("block.9_0.read_bytes", 3.0)]);
    }
}
