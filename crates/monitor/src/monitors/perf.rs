//! The kernel's performance events of the machine and of each group, by CPU.
//!
//! Software events work everywhere; those of the hardware need a PMU, which many virtual machines do not
//! have.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use uncia_cgroup::{PerfEvent, PerfReading};
use uncia_record::Text;

use super::Monitor;
use crate::groups::{GroupPath, Watched};
use crate::samples::{Grown, Sample, Samples};

const SOFTWARE: u32 = 0x1;
const HARDWARE: u32 = 0x0;
const CACHE: u32 = 0x3;
/// In a cache event's number: the operation read, and a miss of it.
const MISS: u64 = 1 << 16;

/// An event: the counter's name, the kernel's type and number (`linux/perf_event.h`).
struct Kind {
    counter: &'static str,
    class: u32,
    number: u64,
}

const fn kind(counter: &'static str, class: u32, number: u64) -> Kind {
    Kind { counter, class, number }
}

/// Of a CPU, this counts idle time, too: so it is of groups alone.
const TASK_CLOCK: &str = "perf.task_clock_ns";
const KINDS: [Kind; 20] = [
    kind(TASK_CLOCK, SOFTWARE, 1),
    kind("perf.page_faults_count", SOFTWARE, 2),
    kind("perf.context_switches_count", SOFTWARE, 3),
    kind("perf.migrations_count", SOFTWARE, 4),
    kind("perf.minor_faults_count", SOFTWARE, 5),
    kind("perf.major_faults_count", SOFTWARE, 6),
    kind("perf.cycles_count", HARDWARE, 0),
    kind("perf.instructions_count", HARDWARE, 1),
    kind("perf.branches_count", HARDWARE, 4),
    kind("perf.branch_misses_count", HARDWARE, 5),
    kind("perf.l1d_loads_count", CACHE, 0),
    kind("perf.l1d_misses_count", CACHE, MISS),
    kind("perf.l1i_misses_count", CACHE, 1 | MISS),
    kind("perf.llc_loads_count", CACHE, 2),
    kind("perf.llc_misses_count", CACHE, 2 | MISS),
    kind("perf.dtlb_loads_count", CACHE, 3),
    kind("perf.dtlb_misses_count", CACHE, 3 | MISS),
    kind("perf.itlb_loads_count", CACHE, 4),
    kind("perf.itlb_misses_count", CACHE, 4 | MISS),
    kind("perf.cache_misses_count", HARDWARE, 3),
];

/// Opens an event on a CPU: of a group's folder, or of all that runs there.
fn open(kind: &Kind, cpu: i32, group: Option<BorrowedFd<'_>>) -> io::Result<PerfEvent> {
    PerfEvent::open(kind.class, kind.number, cpu, group)
}

/// Counts events.
pub(super) struct Perf {
    kinds: Vec<&'static Kind>,
    cpus: Vec<i32>,
    machine: Vec<Open>,
    groups: Watched<Vec<Open>>,
    /// Sentences for the first sample.
    notes: Vec<String>,
}

impl Perf {
    pub(super) fn new(patterns: &[String]) -> Result<Self, String> {
        let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let cpus = online(&cpus).ok_or("the kernel does not say which CPUs it has")?;
        let first = cpus.first().copied().unwrap_or_default();
        let mut kinds = Vec::new();
        let mut hardware = None;
        for kind in &KINDS {
            match open(kind, first, None) {
                Ok(_) => kinds.push(kind),
                Err(error) if kind.class == SOFTWARE => return Err(refused(&error)),
                Err(error) => hardware = Some(error),
            }
        }
        let mut notes = Vec::new();
        if let Some(error) = hardware {
            let absent =
                KINDS.iter().filter(|it| !kinds.iter().any(|have| have.counter == it.counter));
            let names: Vec<_> = absent.map(|it| it.counter).collect();
            notes.push(format!(
                "not supported on this machine: {} (its CPU shows no such counters here: {error})",
                names.join(", ")
            ));
        }
        let mut groups = Watched::new(patterns)?;
        groups.search_for_events();
        if !patterns.is_empty() && !groups.has_trees() {
            notes.push(
                "groups have no events: no tree of version 2, nor of version 1's perf_event, is \
                 mounted"
                    .to_owned(),
            );
        }
        let of_machine: Vec<_> =
            kinds.iter().copied().filter(|kind| kind.counter != TASK_CLOCK).collect();
        let machine = open_all(&of_machine, &cpus, None, uncia_clock::monotonic_ns())
            .map_err(|error| refused(&error))?;
        Ok(Self { kinds, cpus, machine, groups, notes })
    }
}

impl Monitor for Perf {
    fn sample(&mut self, samples: &mut Samples) {
        samples.warnings.append(&mut self.notes);
        for event in &mut self.machine {
            event.sample(None, samples);
        }
        let (kinds, cpus, now) = (&self.kinds, &self.cpus, samples.now);
        let mut failed = Vec::new();
        let sentences = self.groups.look(|group_path, _| {
            let folder = File::open(folder(group_path)?).ok()?;
            match open_all(kinds, cpus, Some(folder.as_fd()), now) {
                Ok(open) => Some(open),
                Err(error) => {
                    failed.push(format!("no events of a control group: {error}"));
                    // Not tried again each time.
                    Some(Vec::new())
                }
            }
        });
        samples.warnings.extend(sentences);
        samples.warnings.append(&mut failed);
        for (group, events) in self.groups.iter_mut() {
            for event in events.iter_mut() {
                event.sample(Some(group), samples);
            }
        }
    }
}

/// Where version 1 has a tree for events, the kernel knows groups by that.
pub(super) fn folder(group_path: &GroupPath) -> Option<std::path::PathBuf> {
    group_path.classic("perf_event").or_else(|| group_path.unified())
}

fn open_all(
    kinds: &[&'static Kind],
    cpus: &[i32],
    group: Option<BorrowedFd<'_>>,
    now: i64,
) -> io::Result<Vec<Open>> {
    let each = kinds.iter().flat_map(|kind| cpus.iter().map(move |cpu| (*kind, *cpu)));
    each.map(|(kind, cpu)| {
        let event = open(kind, cpu, group)?;
        Ok(Open { event, kind, cpu, before: PerfReading::default(), at: now })
    })
    .collect()
}

/// An event on a CPU, as it was read last.
struct Open {
    event: PerfEvent,
    kind: &'static Kind,
    cpu: i32,
    before: PerfReading,
    at: i64,
}

impl Open {
    fn sample(&mut self, group: Option<&Text>, samples: &mut Samples) {
        // A CPU that went offline gives nothing.
        let Some(now) = self.event.read() else { return };
        let interval = samples.now - self.at;
        let (scaled, share) = scale(self.before, now);
        (self.before, self.at) = (now, samples.now);
        if interval <= 0 {
            return;
        }
        let mut push = |counter: Text, value, interval| {
            let cpu = Some(i64::from(self.cpu));
            let group = group.cloned();
            samples.rows.push(Sample { counter, group, cpu, interval, value, at: None });
        };
        if let Some(value) = scaled {
            let grown = Grown { value, interval };
            push(self.kind.counter.into(), grown.value, Some(grown.interval));
        }
        if let Some(share) = share.filter(|_| self.kind.class != SOFTWARE) {
            push(multiplexed(self.kind.counter), share, None);
        }
    }
}

/// The counter of the share of the time in which an event was really counted, in per cent.
fn multiplexed(counter: &str) -> Text {
    let name = counter.strip_suffix("_count").unwrap_or(counter);
    Text::from(format!("{name}_counted_percent").as_str())
}

/// The growth between two readings: what was counted, scaled to the whole time where other events
/// had the CPU's counter in between; and the share of the time counted in per cent, where that is
/// not all. Unknown, if it was never counted.
fn scale(before: PerfReading, after: PerfReading) -> (Option<f64>, Option<f64>) {
    let count = after.count.saturating_sub(before.count) as f64;
    let enabled = after.enabled.saturating_sub(before.enabled);
    let running = after.running.saturating_sub(before.running);
    if running >= enabled {
        return (Some(count), None);
    }
    let share = running as f64 / enabled as f64;
    ((running > 0).then(|| count / share), Some(100.0 * share))
}

/// The CPUs of a list such as "0-3,6".
pub(super) fn online(text: &str) -> Option<Vec<i32>> {
    let ranges = text.trim().split(',').map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse::<i32>().ok()?..=to.parse().ok()?)
    });
    Some(ranges.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
}

fn refused(error: &io::Error) -> String {
    let paranoid = Path::new("/proc/sys/kernel/perf_event_paranoid");
    match (error.raw_os_error(), fs::read_to_string(paranoid)) {
        (Some(libc::EACCES | libc::EPERM), Ok(level)) => format!(
            "the kernel lets this user count no events (kernel.perf_event_paranoid is {}): run as \
             root, with CAP_PERFMON, or set it to -1",
            level.trim()
        ),
        (Some(libc::EMFILE), _) => "too few open files are allowed (ulimit -n)".to_owned(),
        _ => format!("the kernel opens no performance events: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_scaled_to_the_whole_time() {
        let reading = |count, enabled, running| PerfReading { count, enabled, running };
        let before = reading(100, 1_000, 1_000);
        assert_eq!(scale(before, reading(150, 2_000, 2_000)), (Some(50.0), None));
        assert_eq!(scale(before, reading(150, 2_000, 1_250)), (Some(200.0), Some(25.0)));
        assert_eq!(scale(before, reading(100, 2_000, 1_000)), (None, Some(0.0)));
        assert_eq!(scale(before, before), (Some(0.0), None), "a group that did not run");
        assert_eq!(&*multiplexed("perf.cycles_count"), "perf.cycles_counted_percent");
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(online("0-2,5\n"), Some(vec![0, 1, 2, 5]));
        assert_eq!(online("0\n"), Some(vec![0]));
        assert_eq!(online("x"), None);
    }
}
